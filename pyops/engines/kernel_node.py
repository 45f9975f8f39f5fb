"""One node of a session that an Op computes: its attributes and types, and each of its calls."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from ctypes import c_void_p
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import arrays, kernel
from ..errors import KeptArrayWarning, OutputError
from ..types import STRING
from .c_api import Api
from .node_info import read_node_info
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
        # ONNX Runtime reads the hosted op's structure once more when it destroys the kernel.
        self._hosted = hosted
        self._api = api
        self._op = hosted.op
        self._node = node = read_node_info(api, info, hosted.op.signature)
        self._signature = node.signature
        # Set where the result can only be one array, which is most often the case and then quickly seen.
        single = len(node.output_dtypes) == 1 and not node.signature.returns_tuple
        self._only_dtype = node.output_dtypes[0] if single and STRING not in node.output_dtypes else None
        self._lists = [name for name, value in node.attributes.items() if isinstance(value, list)]
        self._takes_buffers = node.signature.takes_out and STRING not in node.output_dtypes
        self._shapes: dict[Any, Sequence[tuple[int | None, ...]]] = {}
        self._warned = False

    def compute(self, context: int) -> None:
        """Run the kernel on the inputs of an ``OrtKernelContext*`` and fill its outputs.

        Raises
        ------
        OutputError
            The kernel returned something other than declared.
        BaseException
            Whatever the kernel raises, with a note that names the node and its inputs.
        """
        workspace = _workspaces.pop() if _workspaces else Workspace(self._api)
        inputs: list[Any] = []
        buffers: list[Any] = []
        try:
            pointer = c_void_p(context)
            for index, dtype in enumerate(self._node.input_dtypes):
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
        op, signature, attributes = self._op, self._signature, self._node.attributes
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
        outputs = kernel.check_outputs(signature, self._node.output_dtypes, result)
        if len(outputs) != len(self._node.output_dtypes):
            raise OutputError(
                f"{signature.qualified_name} returned {len(outputs)} arrays; the model's node has "
                f"{len(self._node.output_dtypes)} outputs"
            )
        if shapes is not None:
            kernel.check_shapes(signature, shapes, outputs, inputs)
        for index, output in enumerate(outputs):
            if not buffers or output is not buffers[index]:
                workspace.write(context, index, output)

    def _shapes_for(self, inputs: list[Any]) -> Sequence[tuple[int | None, ...]]:
        """The output shapes that the op's shape function gives for these inputs."""
        key = (self._op.shape_function, *[None if array is None else array.shape for array in inputs])
        shapes = self._shapes.get(key)
        if shapes is None:
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            shapes = self._shapes[key] = self._op.output_shapes(inputs, self._node.attributes)
        return shapes

    def _add_buffers(
        self, context: c_void_p, workspace: Workspace, shapes: Sequence[tuple[Any, ...]], buffers: list[Any]
    ) -> None:
        """Append ONNX Runtime's own output buffers, or other memory for outputs that the model does not use."""
        for index, shape in enumerate(shapes):
            dtype = self._node.output_dtypes[index]
            buffer = workspace.output(context, index, shape, dtype)
            buffers.append(np.empty(shape, dtype) if buffer is None else buffer)

    def _explain(self, error: BaseException, inputs: list[Any], buffers: list[Any]) -> None:
        note = self._node.describe(inputs if len(inputs) == len(self._node.input_dtypes) else [])
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        frames = []
        step = error.__traceback__
        while step:
            frames.append(step.tb_frame)
            step = step.tb_next
        arrays.detach([array for array in (*inputs, *buffers) if array is not None], frames)

    def _report_kept(self, handed: Sequence[Any]) -> None:
        arrays.detach([array for array in handed if array is not None], [self._op.kernels["cpu"]])
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self._signature.qualified_name} kept an array that it was handed, or a view of one, which is valid "
                f"during its call only; it now has a copy. Keep a copy instead: x.copy() ({self._op.location})",
                KeptArrayWarning,
                stacklevel=2,
            )
