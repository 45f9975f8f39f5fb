"""One node of a session that an Op computes: its attributes and types, and each of its calls."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from ctypes import addressof, c_int64, c_size_t, c_void_p
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from .. import arrays, kernel
from ..errors import InputError, KeptArrayWarning, OutputError, PyopsError
from ..types import STRING, DType, describe, from_ort
from .attributes import read_attributes, read_text
from .c_api import Api

if TYPE_CHECKING:
    from .native import HostedOp

_MAX_RANK = 64
# Where each call puts what ONNX Runtime writes: value, element type, dimensions, rank, data.
_VALUE, _TYPE, _DIMS, _RANK, _DATA, _SHAPE = range(6)


class _Scratch:
    """Words of memory whose addresses are passed to ONNX Runtime as plain ints."""

    __slots__ = ("addresses", "words")

    def __init__(self) -> None:
        self.words = (c_int64 * (_SHAPE + _MAX_RANK))()
        base = addressof(self.words)
        self.addresses = tuple(base + 8 * i for i in range(_SHAPE + 1))


# One per call that runs at the same time; list.pop and list.append are atomic.
_scratches: list[_Scratch] = []


class KernelNode:
    """A node of a session; made once when ONNX Runtime creates the session.

    Raises
    ------
    InputError
        The node's attributes or input types do not match the declaration.
    """

    def __init__(self, api: Api, info: int, hosted: HostedOp) -> None:
        self.api = api
        # ONNX Runtime reads the hosted op's structure once more when it destroys the kernel.
        self.hosted = hosted
        self.op = hosted.op
        self.signature = hosted.op.signature
        self.name = read_text(api, lambda out, size: api.KernelInfo_GetNodeName(info, out, size))
        try:
            self.attributes = read_attributes(api, info, self.signature)
            self.input_dtypes = self._input_dtypes(info)
            self.output_dtypes = kernel.output_dtypes(self.signature, self.input_dtypes)
        except PyopsError as error:
            error.add_note(self._where())
            raise
        self.output_count = self._count(api.KernelInfo_GetOutputCount, info)
        self.strings = arrays.StringTensors(api)
        self._warned = False

    def _count(self, function: Any, info: int) -> int:
        count = c_size_t()
        self.api.check(function(info, addressof(count)))
        return count.value

    def _input_dtypes(self, info: int) -> list[DType | None]:
        return [self._input_dtype(info, i) for i in range(self._count(self.api.KernelInfo_GetInputCount, info))]

    def _input_dtype(self, info: int, index: int) -> DType | None:
        api = self.api
        if not read_text(api, lambda out, size: api.KernelInfo_GetInputName(info, index, out, size)):
            return None
        type_info, tensor_info, code = c_void_p(), c_void_p(), c_int64()
        api.check(api.KernelInfo_GetInputTypeInfo(info, index, addressof(type_info)))
        try:
            api.check(api.CastTypeInfoToTensorInfo(type_info.value, addressof(tensor_info)))
            if not tensor_info.value:
                raise InputError(f"input {index} is no tensor; custom operators take tensors only")
            api.check(api.GetTensorElementType(tensor_info.value, addressof(code)))
        finally:
            api.ReleaseTypeInfo(type_info.value)
        row = from_ort(code.value)
        if row is None:
            raise InputError(f"input {index} has element type {code.value} of ONNX Runtime, which kernels cannot get")
        return row.dtype

    def compute(self, context: int) -> None:
        """Run the kernel on the inputs of an ``OrtKernelContext*`` and fill its outputs.

        Raises
        ------
        OutputError
            The kernel returned something other than declared.
        BaseException
            Whatever the kernel raises, with a note that names the node and its inputs.
        """
        scratch = _scratches.pop() if _scratches else _Scratch()
        inputs: list[Any] = []
        try:
            self._read_inputs(context, scratch, inputs)
            result = self.op.kernels["cpu"](*inputs, **self.attributes)
            outputs = kernel.check_outputs(self.signature, self.output_dtypes, result)
            self._write_outputs(context, scratch, outputs)
        except BaseException as error:
            self._explain(error, inputs)
            raise
        finally:
            _scratches.append(scratch)
        result = outputs = None  # what they hold is not kept by the kernel
        for array in inputs:
            # References: the list, this variable, and the argument of the count itself.
            if getrefcount(array) > 3 and array is not None:
                self._report_kept(inputs)
                break

    # In these two, which run at each call, statuses are looked at before `check` is called.
    def _read_inputs(self, context: int, scratch: _Scratch, inputs: list[Any]) -> None:
        api, words, at = self.api, scratch.words, scratch.addresses
        for index, dtype in enumerate(self.input_dtypes):
            if dtype is None:
                inputs.append(None)
                continue
            if status := api.KernelContext_GetInput(context, index, at[_VALUE]):
                api.check(status)
            value = words[_VALUE]
            if status := api.GetTensorElementTypeAndShapeDataReference(value, at[_TYPE], at[_DIMS], at[_RANK]):
                api.check(status)
            shape = arrays.dims_at(words[_DIMS], words[_RANK])
            if dtype is STRING:
                inputs.append(self.strings.read(value, shape))
                continue
            if status := api.GetTensorMutableData(value, at[_DATA]):
                api.check(status)
            inputs.append(arrays.view(words[_DATA], shape, dtype))

    def _write_outputs(self, context: int, scratch: _Scratch, outputs: Sequence[Any]) -> None:
        api, words, at = self.api, scratch.words, scratch.addresses
        if len(outputs) != self.output_count:
            raise OutputError(
                f"{self.signature.qualified_name} returned {len(outputs)} arrays; the model's node has "
                f"{self.output_count} outputs"
            )
        for index, output in enumerate(outputs):
            shape = output.shape
            for axis, dim in enumerate(shape, _SHAPE):
                words[axis] = dim
            if status := api.KernelContext_GetOutput(context, index, at[_SHAPE], len(shape), at[_VALUE]):
                api.check(status)
            value = words[_VALUE]
            if not value:  # the model does not use this output
                continue
            if output.dtype is STRING:
                self.strings.write(value, output)
            elif output.size:
                if status := api.GetTensorMutableData(value, at[_DATA]):
                    api.check(status)
                arrays.copy_to(words[_DATA], output)

    def _where(self, inputs: Sequence[Any] = ()) -> str:
        declared = self.signature.parameters(len(inputs)) if inputs else ()
        described = ", ".join(f"{item.name}: {describe(array)}" for item, array in zip(declared, inputs, strict=True))
        node = f"node {self.name!r}" if self.name else "a node without a name"
        return f"in {node} ({self.signature.qualified_name})" + (f", inputs {described}" if inputs else "")

    def _explain(self, error: BaseException, inputs: Sequence[Any]) -> None:
        note = self._where(inputs) if len(inputs) == len(self.input_dtypes) else self._where()
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        frames = []
        step = error.__traceback__
        while step:
            frames.append(step.tb_frame)
            step = step.tb_next
        arrays.detach([array for array in inputs if array is not None], frames)

    def _report_kept(self, inputs: Sequence[Any]) -> None:
        arrays.detach([array for array in inputs if array is not None])
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.signature.qualified_name} kept an input array (or a view of one) that is valid during its "
                f"call only; it now has a copy. Keep a copy instead: x.copy() ({self.op.location})",
                KeptArrayWarning,
                stacklevel=2,
            )
