"""Nodes whose plain kernel is called from Python, for lack of machine code, by a function generated for the node.

It does what `KernelNode.compute` does, but its loops are unrolled, and what stays the same from call to call is bound.
It leaves everything unusual to `KernelNode.compute`, which also runs where the generated function does not suit a node.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from sys import getrefcount
from textwrap import indent
from types import MethodType
from typing import Any

import numpy as np

from ..._schema.dtypes import is_viewable
from . import workspace
from .c_api import Api
from .direct_call import DELIVERED, RAISED, RETURNED
from .hosted_op import HostedOp
from .kernel_node import MAX_SHAPES, NEVER, KernelNode

_COMPUTE = """
def compute(node, context):
    known, kernel, shapes = node._bound
    if revision.value != known or not lender.lends:
        return node._rebind(context)
    try:
        cells = pop()
    except IndexError:
        cells = new()
    pointer, value, at_value, at_type, at_dims, at_rank, at_data, values = cells
    pointer.value = context
    {own}result = None
    try:
{body}
    except BaseException as error:
        given = [{passed}error]
        {own}result = None
        node.finish(context, given, RAISED)
    finally:
        push(cells)
    if not usual:
        given = [{passed}result]
        {own}result = None
        node.finish(context, given, RETURNED, {expected})
    elif {kept}:
        given = [{passed}]
        {own}result = None
        node.finish(context, given, DELIVERED)
"""
_READ = f"""
if status := (
    get_input(pointer, %d, at_value) or get_info(value, at_type, at_dims, at_rank) or get_data(value, at_data)
):
    check(status)
_, code, at, rank, address = values
at = at // {workspace.WORD} - 1
s%d = (words[at],) if rank == 1 else tuple(words[at : at + rank])
x%d = ndarray(*readable(address, s%d, code))
"""
_FIND = """
shape, sizes, rank = shapes.get({key}, UNKNOWN)
if shape is None:
    shape, sizes, rank = node._find(shapes, {key}, [{passed}])
"""
_ALLOCATE = f"""
if status := get_output(pointer, 0, sizes, rank, at_value) or get_data(value, at_data):
    check(status)
buffer = writeable(values[{workspace.DATA}], shape, dtype)
"""
_FILL = f"""
if sizes is None:
    return node.compute(context)
{_ALLOCATE}
out = ndarray(shape, dtype, buffer.base)
result = kernel({{arguments}})
usual = result is out and out.shape == shape and out.dtype is dtype and out.flags.c_contiguous
usual = usual and out.base is buffer.base
"""
_RETURN = f"""
result = kernel({{arguments}})
usual = type(result) is ndarray and result.dtype is dtype{{and_shape}}
if usual:
    shape = result.shape
    sizes, rank = dims(shape), len(shape)
{indent(_ALLOCATE, "    ")}
    buffer[...] = result
"""


@functools.cache
def _writer(present: tuple[bool, ...], has_attributes: bool, is_shaped: bool, gives_out: bool) -> Callable[..., Any]:
    """Return a function that takes what the generated function refers to, in the order of `_NAMES`, and returns it."""
    inputs = [f"x{index}" if is_present else "None" for index, is_present in enumerate(present)]
    read = [index for index, is_present in enumerate(present) if is_present]
    own = [*(f"x{index}" for index in read), *["out"] * gives_out]
    arguments = ", ".join([*inputs, *["**attributes"] * has_attributes, *["out=out"] * gives_out])
    passed, key = ("".join(f"{name}, " for name in names) for names in (inputs, [f"s{index}" for index in read]))
    key = "s0" if present == (True,) else f"({key})"
    body = "".join(_READ % ((index,) * 4) for index in read)
    body += _FIND.format(key=key, passed=passed) if is_shaped else ""
    and_shape = " and result.shape == shape" if is_shaped else ""
    body += _FILL.format(arguments=arguments) if gives_out else _RETURN.format(arguments=arguments, and_shape=and_shape)
    source = _COMPUTE.format(
        own="".join(f"{name} = " for name in own),
        passed=passed + "out, " * gives_out,
        body=indent(body, " " * 8),
        expected="[shape]" if is_shaped else "None",
        # The references of a variable and of a tuple, which counts in every version of Python, as an argument does not.
        # A usual result is the variable `out`.
        kept=" or ".join(f"getrefcount(*({name},)) > {3 if name == 'out' else 2}" for name in own) or "False",
    )
    scope: dict[str, Any] = {"__name__": __name__}  # so that tracebacks leave it out
    exec(f"def write({', '.join(_NAMES)}):\n{indent(source, '    ')}\n    return compute", scope)
    return functools.partial(scope["write"], *_SHARED.values())


_SHARED = {
    "UNKNOWN": (None, None, None),
    "DELIVERED": DELIVERED,
    "RAISED": RAISED,
    "RETURNED": RETURNED,
    "getrefcount": getrefcount,
    "ndarray": np.ndarray,
    "words": workspace.words,
    "dims": workspace.dims,
    "readable": workspace.readable,
    "writeable": workspace.writeable,
}
_NAMES = (
    *_SHARED,
    *("check", "get_input", "get_output", "get_info", "get_data"),
    *("revision", "lender", "attributes", "dtype"),
    *("pop", "push", "new"),
)


class WrittenNode(KernelNode):
    """A node of a session whose kernel is called by a function generated for it."""

    def __init__(self, api: Api, info: int, hosted: HostedOp) -> None:
        super().__init__(api, info, hosted)
        # The revision of the op that the generated function is for, its kernel, and output shapes by input shapes.
        self._bound: tuple[int, Any, Any] = _UNBOUND
        self._shape_function: Any = self.op.shape_function
        self._is_shaped = self._shape_function is not None
        self._gives_out = self._is_shaped and self._takes_buffers
        self._bind()

    @property
    def function(self) -> Callable[[int], None]:
        is_usual = (
            self._only_dtype is not None
            and self._node.output_count == 1
            and self._lender is not NEVER
            and not self._lists
            and (self._gives_out or not self._in_place)
            and all(dtype is None or is_viewable(dtype) for dtype in self._node.input_dtypes)
        )
        if not is_usual:
            return self.compute
        api, cells = self._api, list[Any]()
        written = _writer(tuple(self._present), bool(self._attributes), self._is_shaped, self._gives_out)(
            *(api.check, api.KernelContext_GetInput, api.KernelContext_GetOutput),
            *(api.GetTensorElementTypeAndShapeDataReference, api.GetTensorMutableData),
            *(self.op._revision, self._lender, self._attributes, self._only_dtype),
            *(cells.pop, cells.append, lambda: workspace.Workspace(api).cells),
        )
        return MethodType(written, self)

    def _bind(self) -> None:
        """Let the generated function make the calls, if it suits the op as it is now."""
        op, revision = self.op, self.op._revision.value
        kernel, shape_function = op.kernels[self.device_type], op.shape_function
        if kernel is not self._keeper and (shape_function is not None) is self._is_shaped:
            self._shape_function = shape_function
            self._bound = revision, kernel, {}

    def _rebind(self, context: int) -> None:
        self._bind()
        self.compute(context)

    def _find(self, shapes: dict[Any, Any], key: Any, inputs: list[Any]) -> Any:
        if len(shapes) >= MAX_SHAPES:
            shapes.clear()
        shape = tuple(self._shapes_for(inputs, self._shape_function)[0])
        shapes[key] = found = shape, None if None in shape else workspace.dims(shape), len(shape)
        return found

    def _report_kept(self, context: int, passed: list[Any]) -> None:
        super()._report_kept(context, passed)
        self._bound = _UNBOUND


_UNBOUND = -1, None, None
