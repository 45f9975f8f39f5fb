"""One node of a session that an Op computes: its attributes and types, and each of its calls."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from ctypes import addressof, c_int, c_size_t, c_void_p
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import arrays, kernel
from ..errors import InputError, KeptArrayWarning, OutputError, PyopsError
from ..types import STRING, DType, describe, from_ort
from .attributes import read_attributes, read_text
from .c_api import Api
from .workspace import Workspace

if TYPE_CHECKING:
    from .native import HostedOp

_MAX_SHAPES = 256

# One per call that runs at the same time; list.pop and list.append are atomic.
_workspaces: list[Workspace] = []


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
        # Set where the result can only be one array, which is most often the case and then quickly seen.
        single = len(self.output_dtypes) == 1 and not self.signature.returns_tuple
        self._only_dtype = self.output_dtypes[0] if single and STRING not in self.output_dtypes else None
        self._lists = [a.name for a in self.signature.attributes if isinstance(self.attributes[a.name], list)]
        self._takes_buffers = self.signature.takes_out and STRING not in self.output_dtypes
        self._shapes: dict[Any, Sequence[tuple[int | None, ...]]] = {}
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
        type_info, tensor_info, code = c_void_p(), c_void_p(), c_int()
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
            raise InputError(f"input {index} has element type {code.value} of ONNX Runtime, which NumPy lacks")
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
        workspace = _workspaces.pop() if _workspaces else Workspace(self.api)
        inputs: list[Any] = []
        buffers: list[Any] = []
        try:
            pointer = c_void_p(context)
            for index, dtype in enumerate(self.input_dtypes):
                inputs.append(None if dtype is None else workspace.input(pointer, index))
            self._run(pointer, workspace, inputs, buffers)
        except BaseException as error:
            self._explain(error, inputs, buffers)
            raise
        finally:
            _workspaces.append(workspace)
        for array in (*inputs, *buffers) if buffers else inputs:
            # References: the list, this variable, and the argument of the count itself; the tuple's
            # where there is one.
            if getrefcount(array) > 3 + bool(buffers) and array is not None:
                self._report_kept([*inputs, *buffers])
                break

    def _run(self, context: c_void_p, workspace: Workspace, inputs: list[Any], buffers: list[Any]) -> None:
        op, signature, attributes = self.op, self.signature, self.attributes
        if self._lists:  # the kernel may change its own
            attributes = attributes | {name: list(attributes[name]) for name in self._lists}
        shapes = None if op.shape_function is None else self._shapes_for(inputs)
        if shapes is not None and self._takes_buffers and None not in itertools.chain(*shapes):
            self._add_buffers(context, workspace, shapes, buffers)
            out = tuple(buffers) if signature.returns_tuple else buffers[0]
            result = op.kernels["cpu"](*inputs, **attributes, out=out)
            del out
        else:
            result = op.kernels["cpu"](*inputs, **attributes)
        if shapes is None and type(result) is np.ndarray and result.dtype is self._only_dtype:
            workspace.write(context, 0, result)
            return
        outputs = kernel.check_outputs(signature, self.output_dtypes, result)
        if len(outputs) != self.output_count:
            raise OutputError(
                f"{signature.qualified_name} returned {len(outputs)} arrays; the model's node has "
                f"{self.output_count} outputs"
            )
        if shapes is not None:
            kernel.check_shapes(signature, shapes, outputs, inputs)
        for index, output in enumerate(outputs):
            if not buffers or output is not buffers[index]:
                workspace.write(context, index, output)

    def _shapes_for(self, inputs: list[Any]) -> Sequence[tuple[int | None, ...]]:
        """The output shapes that the op's shape function gives for these inputs."""
        key = (self.op.shape_function, *[None if array is None else array.shape for array in inputs])
        shapes = self._shapes.get(key)
        if shapes is None:
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            shapes = self._shapes[key] = self.op.output_shapes(inputs, self.attributes)
        return shapes

    def _add_buffers(
        self, context: c_void_p, workspace: Workspace, shapes: Sequence[tuple[Any, ...]], buffers: list[Any]
    ) -> None:
        """Append ONNX Runtime's own output buffers, or other memory for outputs that the model does not use."""
        for index, shape in enumerate(shapes):
            dtype = self.output_dtypes[index]
            buffer = workspace.output(context, index, shape, dtype)
            buffers.append(np.empty(shape, dtype) if buffer is None else buffer)

    def _where(self, inputs: Sequence[Any] = ()) -> str:
        declared = self.signature.parameters(len(inputs)) if inputs else ()
        described = ", ".join(f"{item.name}: {describe(array)}" for item, array in zip(declared, inputs, strict=True))
        node = f"node {self.name!r}" if self.name else "a node without a name"
        return f"in {node} ({self.signature.qualified_name})" + (f", inputs {described}" if inputs else "")

    def _explain(self, error: BaseException, inputs: Sequence[Any], buffers: Sequence[Any]) -> None:
        note = self._where(inputs) if len(inputs) == len(self.input_dtypes) else self._where()
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        frames = []
        step = error.__traceback__
        while step:
            frames.append(step.tb_frame)
            step = step.tb_next
        arrays.detach([array for array in (*inputs, *buffers) if array is not None], frames)

    def _report_kept(self, handed: Sequence[Any]) -> None:
        arrays.detach([array for array in handed if array is not None])
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.signature.qualified_name} kept an array that it was handed (or a view of one), valid during its "
                f"call only; it now has a copy. Keep a copy instead: x.copy() ({self.op.location})",
                KeptArrayWarning,
                stacklevel=2,
            )
