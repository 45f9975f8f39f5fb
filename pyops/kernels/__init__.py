"""Ready-made operators with the semantics of torch's, in the domain ``pyops``: what its ONNX exporter lacks most.

They are declared like anybody's own, and are good to read before writing one. A model that has them runs where
torch is not installed: `pyops.InferenceSession` imports this package when a model names the domain, and so does
an export. Sessions that others create get those that were asked for by then; `declare_all` brings the rest.

Each op is a name of one of the modules here, callable with NumPy arrays as any `Op` is.
"""

import difflib

from .._ops import registry
from .._ops.op import AnyOp
from ..errors import ModelError

with registry.collecting() as _declared:
    from . import (  # noqa: F401
        factored_systems,
        fft,
        guards,
        histograms,
        layers,
        linear_systems,
        order_statistics,
        orthogonal_factorization,
        pairwise,
        pointwise,
        pooling,
        reductions,
        scattering,
        searching,
        special,
        spectral,
        triangular_factorization,
    )

OPS = {op.name: op for op in _declared}
"""Every op of the library by its op type."""


def provide(name: str) -> AnyOp:
    """Return the op of this name without declaring it.

    Raises
    ------
    ModelError
        There is none.
    """
    if name not in OPS:
        near = difflib.get_close_matches(name, OPS, n=1)
        raise ModelError(f"pyops.kernels has no op {name}" + (f"; did you mean pyops::{near[0]}?" if near else ""))
    return OPS[name]


def declare_all() -> None:
    """Declare every op of the library, for sessions that are created without pyops reading their model.

    Examples
    --------
    >>> import pyops.kernels
    >>> pyops.kernels.declare_all()
    """
    registry.declare_new(OPS.values())
