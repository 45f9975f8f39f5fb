"""Nodes that an op's kernel computes on NumPy arrays, and the base class of the other kinds."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_void_p
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from ...._support.element_types import DType, is_viewable
from ....errors import add_note
from ...ops.node_state import make_state
from ...ops.op import AnyOp, output_shapes
from ...schema import call_validation
from ...schema.call_validation import Shapes
from ...schema.node_validation import describe_node, explain_read_only
from .. import kernel_exceptions
from ..profiling import NodeProfile
from .borrowing import CallingThread, counts_references, detach, extra_references, has_arena, is_borrowed, warn_kept
from .c_api import Api
from .call_tensors import Workspace
from .node_info import read_node_info
from .ort_custom_op import HostedOp

_MOST_SHAPES = 256
_calling_thread = CallingThread()
_numbers = itertools.count(1)
Learn = Callable[[int, Any, Any, list[Any], Any], None]
"""What gets the op's revision, its kernel and shape function, the inputs of a call, and the output shapes, or None."""
ALWAYS, _NEVER = SimpleNamespace(lends=True), SimpleNamespace(lends=False)

Outcome = Literal["delivered", "returned", "raised", "failed"]
"""What came of a kernel that machine code called: outputs in place, a result, an exception; or no kernel was called."""


def read_only_copy(array: Any) -> Any:
    """Return a read-only copy of an array, or None for None."""
    if array is not None:
        array = array.copy()
        array.flags.writeable = False
    return array


class KernelNode:
    """A node of a session, created when ONNX Runtime creates the session.

    Attributes
    ----------
    name : str
        The node's name in the model; may be empty.
    op : Op
        The op that computes the node.
    address : int
        What ONNX Runtime passes to the callbacks to tell the nodes apart.

    Raises
    ------
    InputError
        The node's attributes or input types do not match the declaration.
    """

    device_type = "cpu"
    _clock: NodeProfile | None = None
    # The module whose arrays the kernel takes and returns.
    _array_module: Any = np

    def __init__(self, api: Api, info: int, hosted: HostedOp) -> None:
        # Kept alive: ONNX Runtime reads the hosted op's structure once more when it destroys the kernel.
        self._hosted = hosted
        self._api = api
        self.address = next(_numbers)
        self.op: AnyOp = hosted.op
        self.revision = hosted.op._revision
        self.info = node = read_node_info(api, info, hosted.op.signature)
        self.name = node.name
        self._signature = node.signature
        self._present = [dtype is not None for dtype in node.input_dtypes]
        self.attributes = node.attributes
        if node.signature.takes_state:
            try:
                self.attributes = node.attributes | {"state": make_state(self.op, node.attributes)}
            except BaseException as error:  # interrupts get the note, too
                add_note(error, describe_node(node.name, node.signature))
                raise
        # Set if the result must be a single array: this common case then needs one comparison.
        single = len(node.output_dtypes) == 1 and not node.signature.returns_tuple
        self._only_dtype = node.output_dtypes[0] if single and is_viewable(node.output_dtypes[0]) else None
        self.lists = [name for name, value in node.attributes.items() if isinstance(value, list)]
        self.takes_buffers = node.signature.takes_out and all(map(is_viewable, node.output_dtypes))
        self._shapes: dict[Any, Shapes] = {}
        # The kernel that was found to keep arrays, which gets copies from then on.
        self.keeper: Any = None
        self.lender = self._lender_for(info)
        self.may_borrow = self.lender is not _NEVER
        # One per concurrent call; list.pop and list.append are atomic.
        self._workspaces: list[Any] = []

    def _lender_for(self, info: int) -> Any:
        """Return an object whose `lends` says whether kernels may get borrowed arrays rather than copies."""
        return _calling_thread if counts_references() and has_arena(self._api, info) else _NEVER

    def timed(self, clock: NodeProfile) -> Callable[[int], Any]:
        """Return a function that computes and times the node."""
        return functools.partial(clock.call, self.with_clock(clock).compute)

    def with_clock(self, clock: NodeProfile) -> KernelNode:
        """Return a copy of this node that times the kernel."""
        node = copy.copy(self)
        node._clock = clock
        return node

    def compute(self, context: int, learn: Learn | None = None) -> None:
        """Run the kernel on the inputs of an ``OrtKernelContext*``, and fill its outputs.

        Before that, pass what the call depends on to `learn`.

        Raises
        ------
        OutputError
            The kernel's result does not match the declaration.
        BaseException
            Any exception of the kernel, with a note that names the node and its inputs.
        """
        self._carry_out(context, self._call, learn)

    def finish(self, context: int, outcome: Outcome, objects: list[Any], shapes: Shapes | None) -> None:
        """Finish a call whose kernel has run in machine code.

        Parameters
        ----------
        outcome : str
            What came of the kernel.
        objects : list
            What was passed to the kernel, nothing if it "failed", then its result or exception. The list is emptied.
        shapes : sequence of tuple or None
            The output shapes that the shape function gave.
        """
        self._carry_out(context, self._finish, (outcome, objects, shapes))

    def _carry_out(self, context: int, step: Callable[[c_void_p, Any, list[Any], Any], None], argument: Any) -> None:
        workspace = self._workspaces.pop() if self._workspaces else self._new_workspace()
        passed: list[Any] = []
        pointer = workspace.context
        pointer.value = context
        try:
            step(pointer, workspace, passed, argument)
            self._check_kept(context, passed)
        except BaseException as error:  # interrupts get the note, too
            self._explain(error, context, passed)
            raise
        finally:
            self._workspaces.append(workspace)

    def _finish(
        self, context: c_void_p, workspace: Any, passed: list[Any], handed: tuple[Outcome, list[Any], Any]
    ) -> None:
        outcome, objects, shapes = handed
        if outcome == "failed":
            self._read(context, workspace, passed)
        # Here, since an interrupt may come after each call, and arrays that the kernel keeps must then be detached.
        passed += objects
        objects.clear()
        if outcome == "returned":
            self._write(context, workspace, passed, passed.pop(), shapes)
        elif outcome != "delivered":
            raise passed.pop()

    def _new_workspace(self) -> Any:
        return Workspace(self._api)

    def _read(self, context: c_void_p, workspace: Any, into: list[Any]) -> None:
        """Append the inputs."""
        workspace.read(self._api.KernelContext_GetInput, context, self._present, into)

    def _call(self, context: c_void_p, workspace: Any, passed: list[Any], learn: Learn | None) -> None:
        self._read(context, workspace, passed)
        revision = self.revision.value  # first, so that what is read after it is at least as new
        function, shape_function = self.op.kernels[self.device_type], self.op.shape_function
        lends = self.lender.lends and self.keeper is not function
        if not lends:
            passed[:] = map(self._copy, passed)
        shapes = None if shape_function is None else self._shapes_for(passed, shape_function)
        if learn is not None:
            learn(revision, function, shape_function, passed, shapes)
        self._invoke(context, workspace, passed, function, shapes, lends)

    # Apart from `learn`: what numba compiles there leaves frames of its callers to the garbage collector, and a result
    # among their variables, which may be a view of an input, would pass for an array that the kernel keeps.
    def _invoke(
        self, context: c_void_p, workspace: Any, passed: list[Any], function: Any, shapes: Shapes | None, lends: bool
    ) -> None:
        attributes, count = self.attributes, len(passed)
        if self.lists:  # the kernel may modify its argument
            attributes = attributes | {name: list(attributes[name]) for name in self.lists}
        if shapes is not None and self.takes_buffers and lends and None not in itertools.chain(*shapes):
            buffers = self._buffers(context, workspace, shapes)
            passed += buffers
            out = tuple(buffers) if self._signature.returns_tuple else buffers[0]
            attributes = {**attributes, "out": out}
        if self._clock is not None:
            function = self._clock.timed(function)
        result = function(*passed[:count], **attributes)
        if shapes is None and type(result) is np.ndarray and result.dtype is self._only_dtype:
            buffer = workspace.buffer(context, 0, result.shape, self._only_dtype)
            if buffer is not None:
                buffer[...] = result
        else:
            self._write(context, workspace, passed, result, shapes)

    def _write(self, context: c_void_p, workspace: Any, passed: list[Any], result: Any, shapes: Shapes | None) -> None:
        """Validate what the kernel returned, and copy it to ONNX Runtime's buffers."""
        inputs, buffers = passed[: len(self._present)], passed[len(self._present) :]
        outputs = self._checked(result)
        if shapes is not None:
            call_validation.check_shapes(self._signature, shapes, outputs, inputs)
        if buffers and all(map(self._is_written, outputs, buffers)):
            return
        # Asked for again: a kernel may have given these arrays other memory.
        memory = self._buffers(context, workspace, shapes) if buffers and shapes is not None else ()
        for index, output in self._unwritten(outputs, inputs, buffers, memory):
            workspace.write(context, index, output)

    def _unwritten(
        self, outputs: Sequence[Any], inputs: Sequence[Any], buffers: Sequence[Any], memory: Sequence[Any]
    ) -> Iterable[tuple[int, Any]]:
        """Return the outputs that still have to be copied to ONNX Runtime's buffers, with their positions.

        An output that shares memory with a buffer to be written to (of another output, or of an input that an output
        may reuse) is copied first.
        """
        unwritten = enumerate(outputs[: self.info.output_count])
        if not buffers and not self._signature.may_inplace:
            return unwritten
        changing = [*memory, *(inputs if self._signature.may_inplace else ())]
        return [
            (index, self._copy(output) if self._is_in_any(changing, output) else output)
            for index, output in unwritten
            if not buffers or not self._is_written(output, buffers[index])
        ]

    def _is_written(self, output: Any, buffer: Any) -> bool:
        # A kernel may change the array's strides or memory.
        return output is buffer and buffer.flags.c_contiguous and is_borrowed(buffer)

    _copy = staticmethod(read_only_copy)

    def _empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return np.empty(shape, dtype)

    def _is_in_any(self, arrays: Iterable[Any], output: Any) -> bool:
        module = self._array_module
        return any(isinstance(array, module.ndarray) and module.may_share_memory(output, array) for array in arrays)

    def _checked(self, result: Any) -> tuple[Any, ...]:
        outputs = call_validation.check_outputs(self._signature, self.info.output_dtypes, result)
        if len(outputs) != len(self.info.output_dtypes):
            raise call_validation.output_count_error(self._signature, outputs, self.info.output_count)
        return outputs

    def _shapes_for(self, inputs: list[Any], function: Callable[..., Any]) -> Shapes:
        """Return the output shapes that a shape function gives for these inputs, from a cache."""
        key = (function, *[None if array is None else array.shape for array in inputs])
        shapes = self._shapes.get(key)
        if shapes is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            shapes = self._shapes[key] = output_shapes(self.op.signature, function, inputs, self.info.attributes)
        return shapes

    def _buffers(self, context: c_void_p, workspace: Any, shapes: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return ONNX Runtime's output buffers, and new arrays for outputs that the model does not use."""
        buffers = []
        for index, (shape, dtype) in enumerate(zip(shapes, self.info.output_dtypes, strict=True)):
            used = index < self.info.output_count
            buffer = workspace.output(context, index, shape, dtype) if used else None
            buffers.append(self._empty(shape, dtype) if buffer is None else buffer)
        return buffers

    def _explain(self, error: BaseException, context: int, passed: list[Any]) -> None:
        inputs = passed[: len(self._present)]
        known = inputs if len(inputs) == len(self._present) else []
        note = describe_node(self.name, self._signature, known)
        del inputs, known
        detach(self._api, context, passed, len(self._present), error.__traceback__)
        add_note(error, note)
        explain_read_only(error)

    def _check_kept(self, context: int, passed: list[Any]) -> None:
        """Report the kernel if it has kept what it was given."""
        extra = extra_references(passed)
        if any(extra) and any(map(is_borrowed, itertools.compress(passed, extra))):
            # The frame of a kernel that ran a session and caught its exception is still part of that traceback.
            last = kernel_exceptions.last_exception()
            if detach(self._api, context, passed, len(self._present), last.__traceback__ if last else None):
                # Arrays kept so far keep the session and its feeds alive. Later calls get copies, which may be kept.
                self.keeper = self.op.kernels["cpu"]
                warn_kept(self.op, "an array")
