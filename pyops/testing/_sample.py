"""One call of an op, as data: what tables of samples are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .._ops.builtin import ONNX_DOMAIN
from .._ops.op import AnyOp
from .._schema import validation
from .._schema.attribute import Attribute, AttributeKind
from .._schema.dtypes import describe, element_type
from .._schema.signature import Signature
from .._schema.specs import TensorSpec
from ..errors import InputError
from ._outputs import Outputs

if TYPE_CHECKING:
    import onnx


# That of ONNX's own domain, with the IR version that came with it; older ones lack element types.
_OPSET = 23
_IR_VERSION = 11


def sample_model(
    signature: Signature, inputs: Sequence[Any], attributes: Mapping[str, Any], outputs: Sequence[Any], dynamic: bool
) -> onnx.ModelProto:
    """As `Sample.model`; `outputs` are what the call returns."""
    domain = "" if signature.domain == ONNX_DOMAIN else signature.domain
    feed = {f"x{index}": array for index, array in enumerate(inputs)}
    results = {f"y{index}": array for index, array in enumerate(outputs)}
    given = ["" if array is None else name for name, array in feed.items()]
    node = helper.make_node(signature.name, given, list(results), domain=domain, name=signature.name)
    for name, value in attributes.items():
        declared = signature.attribute(name)
        if declared is not None and value is not None:
            node.attribute.append(_attribute(declared, value))
    graph = helper.make_graph(
        [node],
        signature.name,
        [_value_info(name, x, None if dynamic else x.shape) for name, x in feed.items() if x is not None],
        [_value_info(name, y, None) for name, y in results.items()],
    )
    imports = {"": _OPSET} | ({domain: signature.version} if domain else {})
    opsets = [helper.make_opsetid(*item) for item in imports.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def _attribute(declared: Attribute, value: Any) -> onnx.AttributeProto:
    value = declared.convert(value)
    if declared.kind is AttributeKind.TENSOR:
        value = numpy_helper.from_array(value)
    elif declared.boolean:
        value = int(value)
    return helper.make_attribute(declared.name, value, attr_type=declared.kind.value)


def _value_info(name: str, array: Any, shape: Sequence[int] | None) -> onnx.ValueInfoProto:
    row = element_type(array.dtype)
    assert row is not None
    return helper.make_tensor_value_info(name, row.onnx, shape)


class Sample:
    """One call of an op that has not been made yet.

    Parameters
    ----------
    op : Op
    *inputs : numpy.ndarray or None
        As for the call; a number is no array, ``np.float32(2)`` is.
    **attributes
        As for the call; inputs may be passed by name, too.

    Attributes
    ----------
    inputs : tuple
        Arrays; None for an absent optional input.
    attributes : dict
        Those that are given.
    id : str
        What tests are called that run over a table of samples.
    generated : bool
        Whether the inputs come from the signature alone.
    returned : Outputs or None
        What `returns` was given.

    Raises
    ------
    InputError
        An attribute is unknown or missing, or an input is no array.

    Examples
    --------
    >>> import numpy as np, pyops
    >>> from pyops.kernels.cumulative import cumprod
    >>> pyops.testing.Sample(cumprod, np.array([3, 4]), dim=0).with_expected([3, 12])
    Cumprod(int64[2], dim=0)
    """

    def __init__(self, op: AnyOp, /, *inputs: Any, **attributes: Any) -> None:
        arrays, converted = validation.split_arguments(op.signature, inputs, attributes)
        self.op = op
        self.inputs = tuple(arrays)
        # An iterator is at its end by now.
        self.attributes = {
            name: converted[name] if isinstance(value, Iterator) else value
            for name, value in attributes.items()
            if op.signature.attribute(name)
        }
        self.generated = False
        self.returned: Outputs | None = None
        self.id = _spell_call(op, self.inputs, self.attributes)

    def with_expected(self, *outputs: Any) -> Sample:
        """The same call with the outputs that it is expected to have.

        Parameters
        ----------
        *outputs : array_like
            One per output. What is no array yet becomes one of the output's declared dtype.

        Raises
        ------
        InputError
            There are more or fewer than the op has.
        """
        other = self.with_id(self.id)
        other.returned = Outputs(_expected_arrays(self, outputs))
        return other

    def with_id(self, id: str) -> Sample:
        """The same call under another `id`."""
        other = Sample.__new__(Sample)
        other.__dict__ |= self.__dict__
        other.id = id
        return other

    def expected(self) -> Outputs:
        """What the call has to give everywhere: what `returns` was given, or else what the plain call gives."""
        if self.returned is not None:
            return self.returned
        result = self.op(*self.inputs, **self.attributes)
        return Outputs(result if isinstance(result, tuple) else (result,))

    def model(self, dynamic: bool = False) -> onnx.ModelProto:
        """A model with this call as its only node.

        Inputs are called ``x0``, ``x1``, ..., by position, and outputs ``y0``, ``y1``, ...

        Parameters
        ----------
        dynamic : bool
            Leave the inputs' shapes open, ranks included.
        """
        return sample_model(self.op.signature, self.inputs, self.attributes, self._typed_outputs(), dynamic)

    def _typed_outputs(self) -> Sequence[Any]:
        """Return what has the dtypes of the outputs; the kernel runs only where nothing else tells them."""
        signature = self.op.signature
        if self.returned is None:
            dtypes = [None if array is None else array.dtype for array in self.inputs]
            declared = validation.output_dtypes(signature, dtypes)
            known = [TensorSpec((), dtype) for dtype in declared if dtype is not None]
            if not signature.outputs[-1].variadic and len(known) == len(declared):
                return known
            if self.op.shape_function is not None:
                given = [None if array is None else TensorSpec(array.shape, array.dtype) for array in self.inputs]
                return self.op.infer_shapes(*given, **self.attributes)
        return self.expected()

    @property
    def feed(self) -> dict[str, Any]:
        """The inputs by their names in `model`, for ``session.run(None, sample.feed)``."""
        return {f"x{index}": array for index, array in enumerate(self.inputs) if array is not None}

    def __repr__(self) -> str:
        return _spell_call(self.op, self.inputs, self.attributes)


def _expected_arrays(sample: Sample, outputs: Sequence[Any]) -> list[Any]:
    """Expected outputs as arrays of the declared dtypes; raises as `Sample.with_expected`."""
    signature = sample.op.signature
    dtypes = validation.output_dtypes(signature, [None if array is None else array.dtype for array in sample.inputs])
    if not signature.has_outputs(len(outputs)):
        raise InputError(f"got {len(outputs)} expected outputs; {signature} has {len(signature.outputs)}")
    dtypes += (dtypes[-1],) * (len(outputs) - len(dtypes))
    return [
        value if hasattr(value, "dtype") else np.asarray(value, dtype)
        for value, dtype in zip(outputs, dtypes, strict=False)
    ]


def _spell_call(op: AnyOp, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> str:
    spelled = [describe(array) for array in inputs]
    for name, value in attributes.items():
        attribute = op.signature.attribute(name)
        tensor = attribute is not None and attribute.kind is AttributeKind.TENSOR
        spelled.append(f"{name}={describe(value) if tensor else repr(value)}")
    return f"{op.name}({', '.join(spelled)})"
