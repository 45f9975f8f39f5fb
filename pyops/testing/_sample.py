"""A call of an op as data, for tables of test cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .._core import AnyOp, AttributeKind, Input, Output, output_dtypes, split_arguments
from .._onnx.op_schemas import attribute_proto
from .._support.builtin_operators import ONNX_DOMAIN
from .._support.element_types import describe, element_type
from .._tolerances import Outputs
from ..errors import InputError
from ..shapes import TensorSpec

# The opset of ONNX's own domain and its IR version; older ones lack element types.
_OPSET = 23
_IR_VERSION = 11


def value_names(declared: Sequence[Input | Output], count: int) -> list[str]:
    """Return the names of the first `count` inputs or outputs; variadic ones are ``name[0]``, ``name[1]``, ..."""
    last = len(declared) - 1
    names = [declared[min(index, last)].name for index in range(count)]
    variadic = bool(declared) and declared[-1].variadic
    return [f"{name}[{index - last}]" if variadic and index >= last else name for index, name in enumerate(names)]


def _value_info(name: str, array: Any, shape: Sequence[int] | None) -> onnx.ValueInfoProto:
    row = element_type(array.dtype)
    assert row is not None
    return helper.make_tensor_value_info(name, row.onnx, shape)


class Sample:
    """A call of an op as data: the op, its inputs and its attributes.

    Parameters
    ----------
    op : Op
        The op to call.
    *inputs : numpy.ndarray or None
        The inputs of the call. ``2.0`` is not an array; ``np.float32(2)`` is one.
    **attributes
        The attributes of the call, and inputs passed by name.

    Attributes
    ----------
    inputs : tuple
        The arrays; None for an absent optional input.
    attributes : dict
        The attributes that are given, without defaults.
    id : str
        The test id in tests that are parametrized with samples.
    generated : bool
        Whether the inputs were generated from the signature.
    returned : Outputs or None
        The outputs that `with_expected` set.

    Raises
    ------
    InputError
        An attribute is unknown or missing, or an input is not an array.

    Examples
    --------
    >>> import numpy as np, pyops
    >>> from pyops.kernels.reductions import cumprod
    >>> pyops.testing.Sample(cumprod, np.array([3, 4]), dim=0).with_expected([3, 12])
    Cumprod(int64[2], dim=0)
    """

    def __init__(self, op: AnyOp, /, *inputs: Any, **attributes: Any) -> None:
        arrays, converted = split_arguments(op.signature, inputs, attributes)
        self.op = op
        self.inputs = tuple(arrays)
        # Converting has consumed an iterator.
        self.attributes = {
            name: converted[name] if isinstance(value, Iterator) else value
            for name, value in attributes.items()
            if op.signature.attribute(name)
        }
        self.generated = False
        self.returned: Outputs | None = None
        self.id = _format_call(op, self.inputs, self.attributes)

    def with_expected(self, *outputs: Any) -> Sample:
        """Copy the sample and set its expected outputs.

        Parameters
        ----------
        *outputs : array_like
            One per output. Numbers and lists become arrays of the output's declared dtype.

        Raises
        ------
        InputError
            The op has another number of outputs.
        """
        other = self.with_id(self.id)
        other.returned = Outputs(_expected_arrays(self, outputs))
        return other

    def with_id(self, id: str) -> Sample:
        """Copy the sample and set its `id`."""
        other = Sample.__new__(Sample)
        other.__dict__ |= self.__dict__
        other.id = id
        return other

    def expected(self) -> Outputs:
        """Return the outputs that `with_expected` set, or else those of the plain call."""
        if self.returned is not None:
            return self.returned
        result = self.op(*self.inputs, **self.attributes)
        return Outputs(result if isinstance(result, tuple) else (result,))

    def model(self, dynamic: bool = False) -> onnx.ModelProto:
        """Build a model with this call as its only node.

        Its inputs and outputs are named as those of the op: ``x``, and ``xs[0]``, ``xs[1]``, ... for a variadic one.
        An output with the name of an input is ``x_``.

        Parameters
        ----------
        dynamic : bool
            If True, the inputs have unknown shapes, ranks included.
        """
        signature, outputs = self.op.signature, self._typed_outputs()
        domain = "" if signature.domain == ONNX_DOMAIN else signature.domain
        feed = dict(zip(value_names(signature.inputs, len(self.inputs)), self.inputs, strict=True))
        results: dict[str, Any] = {}
        for name, array in zip(value_names(signature.outputs, len(outputs)), outputs, strict=True):
            results[next(free for free in (name + "_" * n for n in count()) if free not in {**feed, **results})] = array
        given = ["" if array is None else name for name, array in feed.items()]
        node = helper.make_node(signature.name, given, list(results), domain=domain, name=signature.name)
        for name, value in self.attributes.items():
            declared = signature.attribute(name)
            if declared is not None and value is not None:
                node.attribute.append(attribute_proto(declared, declared.convert(value)))
        graph = helper.make_graph(
            [node],
            signature.name,
            [_value_info(name, x, None if dynamic else x.shape) for name, x in feed.items() if x is not None],
            [_value_info(name, y, None) for name, y in results.items()],
        )
        imports = {"": _OPSET} | ({domain: signature.version} if domain else {})
        opsets = [helper.make_opsetid(*item) for item in imports.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)

    def _typed_outputs(self) -> Sequence[Any]:
        """Return objects with the dtypes of the outputs; the kernel runs only if nothing else gives them."""
        signature = self.op.signature
        if self.returned is None:
            dtypes = [None if array is None else array.dtype for array in self.inputs]
            declared = output_dtypes(signature, dtypes)
            known = [TensorSpec((), dtype) for dtype in declared if dtype is not None]
            if not signature.outputs[-1].variadic and len(known) == len(declared):
                return known
            if self.op.shape_function is not None:
                return self.op.infer_shapes(*self.inputs, **self.attributes)
        return self.expected()

    @property
    def feed(self) -> dict[str, Any]:
        """Return the inputs by their names in `model`, for ``session.run(None, sample.feed)``."""
        names = value_names(self.op.signature.inputs, len(self.inputs))
        return {name: array for name, array in zip(names, self.inputs, strict=True) if array is not None}

    def __repr__(self) -> str:
        return _format_call(self.op, self.inputs, self.attributes)


def _expected_arrays(sample: Sample, outputs: Sequence[Any]) -> list[Any]:
    """Convert expected outputs to arrays of the declared dtypes; see `Sample.with_expected`."""
    signature = sample.op.signature
    dtypes = output_dtypes(signature, [None if array is None else array.dtype for array in sample.inputs])
    if not signature.has_outputs(len(outputs)):
        names = ", ".join(f"*{item.name}" if item.variadic else item.name for item in signature.outputs)
        given = f"({names})" if signature.returns_tuple else names
        raise InputError(
            f"got {len(outputs)} expected outputs; {signature} has {len(signature.outputs)}: write "
            f"with_expected({names}), or check(..., expected={given}), where a tuple is several outputs"
        )
    dtypes += (dtypes[-1],) * (len(outputs) - len(dtypes))
    return [
        value if hasattr(value, "dtype") else np.asarray(value, dtype)
        for value, dtype in zip(outputs, dtypes, strict=False)
    ]


def _format_call(op: AnyOp, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> str:
    spelled = [describe(array) for array in inputs]
    for name, value in attributes.items():
        attribute = op.signature.attribute(name)
        tensor = attribute is not None and attribute.kind is AttributeKind.TENSOR
        spelled.append(f"{name}={describe(value) if tensor else repr(value)}")
    return f"{op.name}({', '.join(spelled)})"
