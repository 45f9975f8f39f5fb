"""Counterparts, for complex numbers, of the ops of linear algebra and of the running product.

Each has the name of the op for real numbers with "Complex" before it, and the same inputs, outputs and attributes.
Arrays of complex numbers have one more dimension, the last, of size 2: the real and the imaginary part. Where the op
for real numbers transposes a matrix, the one for complex numbers conjugates it as well.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any, TypeVar

from .. import Op
from .._core import AnyOp, Input, Output, TypeParameter, declare_op
from ..errors import ShapeInferenceError
from ..shapes import TensorSpec
from . import linear_systems, orthogonal_factorization, reductions, spectral, triangular_factorization
from ._arrays import as_complex, as_pairs, differ

T = TypeVar("T", Input, Output)


def _of_complex(op: AnyOp, *real: str) -> AnyOp:
    """Declare the counterpart of an op for complex numbers; the outputs named in `real` stay real."""
    kernel, shape_function, name = op.kernels["cpu"], op.shape_function, f"Complex{op.name}"
    assert shape_function is not None
    numbers = op.signature.inputs[0].type
    wide = TypeParameter("Wide", tuple(dtype for dtype in numbers.dtypes if dtype.kind == "f" and dtype.itemsize >= 4))

    def retyped(items: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(dataclasses.replace(item, type=wide) if item.type == numbers else item for item in items)

    inputs, outputs = retyped(op.signature.inputs), retyped(op.signature.outputs)
    tensors: tuple[Input | Output, ...] = (*inputs, *outputs)
    is_complex = [item.type == wide and item.name not in real for item in tensors]

    @functools.wraps(kernel)
    def compute(*arrays: Any, **attributes: Any) -> Any:
        given = [as_complex(x) if of and x is not None else x for x, of in zip(arrays, is_complex, strict=False)]
        found = kernel(*given, **attributes)
        if not isinstance(found, tuple):
            return as_pairs(found)
        return type(found)(*(as_pairs(x) if x.dtype.kind == "c" else x for x in found))  # a NamedTuple

    def infer(*specs: TensorSpec | None, **attributes: Any) -> tuple[TensorSpec, ...]:
        given = [_without_pairs(name, spec) if of else spec for spec, of in zip(specs, is_complex, strict=False)]
        found = shape_function(*given, **attributes)
        pairs = zip(found if isinstance(found, tuple) else (found,), is_complex[len(inputs) :], strict=True)
        return tuple(spec.like(shape=(*spec.shape, 2)) if of else spec for spec, of in pairs)

    compute.__name__ = compute.__qualname__ = f"complex_{op.__name__}"
    compute.__module__ = __name__
    compute.__doc__ = _docstring(op, real)
    signature = dataclasses.replace(op.signature, name=name, inputs=inputs, outputs=outputs)
    made = declare_op(Op(signature, compute, op.device_types))
    made.register_shape_inference(infer)
    return made


def _without_pairs(name: str, spec: TensorSpec | None) -> TensorSpec | None:
    if spec is None:
        return None
    if not spec.shape or differ(spec.shape[-1], 2):
        raise ShapeInferenceError(
            f"{name}: an input has shape {list(spec.shape)}; complex values must be pairs of reals along a last "
            "dimension of 2"
        )
    return spec.like(shape=spec.shape[:-1])


def _docstring(op: AnyOp, real: tuple[str, ...]) -> str:
    kept = f"; {', '.join(f'`{name}`' for name in real)} as for real numbers" if real else ""
    sections = (inspect.getdoc(op) or "").partition("Parameters\n----------")
    return f"""Compute `{op.name}` of complex numbers{kept}.

Complex numbers are pairs of reals along one more dimension than stated here: the last, of size 2.

{"".join(sections[1:])}"""


complex_inv_ex = _of_complex(linear_systems.inv_ex)
complex_solve_ex = _of_complex(linear_systems.solve_ex)
complex_slogdet = _of_complex(linear_systems.slogdet, "logabsdet")
complex_solve_triangular = _of_complex(linear_systems.solve_triangular)
complex_cholesky_inverse = _of_complex(linear_systems.cholesky_inverse)
complex_cholesky_solve = _of_complex(linear_systems.cholesky_solve)
complex_lu_solve = _of_complex(linear_systems.lu_solve)
complex_ldl_solve = _of_complex(linear_systems.ldl_solve)
complex_lu_factor_ex = _of_complex(triangular_factorization.lu_factor_ex)
complex_lu_unpack = _of_complex(triangular_factorization.lu_unpack)
complex_cholesky_ex = _of_complex(triangular_factorization.cholesky_ex)
complex_ldl_factor_ex = _of_complex(triangular_factorization.ldl_factor_ex)
complex_qr = _of_complex(orthogonal_factorization.qr)
complex_geqrf = _of_complex(orthogonal_factorization.geqrf)
complex_householder_product = _of_complex(orthogonal_factorization.householder_product)
complex_ormqr = _of_complex(orthogonal_factorization.ormqr)
complex_lstsq = _of_complex(orthogonal_factorization.lstsq, "residuals", "singular_values")
complex_svd = _of_complex(spectral.svd, "S")
complex_eigh = _of_complex(spectral.eigh, "eigenvalues")
# The eigenvalues and eigenvectors of real matrices are pairs already.
complex_eig = _of_complex(spectral.eig, "eigenvalues", "eigenvectors")
complex_pinv = _of_complex(spectral.pinv)
complex_matrix_exp = _of_complex(spectral.matrix_exp)
complex_cumprod = _of_complex(reductions.cumprod)
