"""Checks of the kernel called as a plain function."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._compiled.kernel import CompiledKernel
from .._schema.dtypes import STRING, dtype_name
from ..errors import OutputError
from . import _variations
from ._case import Case, NotRun, copies, quiet, spell_error, views


def inputs_unchanged(case: Case) -> None:
    """Check that the kernel does not write into its inputs."""
    for writable in (True, False):
        arrays = case.lend()
        try:
            with quiet():
                case.function(*views(arrays, writable), **case.attributes)
        except (Exception, SystemExit):
            # The next check reports it; this one looks at what the kernel wrote before it raised.
            pass
        for item, before, after in zip(case.signature.parameters(len(arrays)), case.arrays, arrays, strict=True):
            if before is not None and not _identical(before, after):
                raise AssertionError(f"the kernel changes its input {item.name!r}; work on a copy: {item.name}.copy()")


def outputs(case: Case) -> None:
    """Check that the kernel returns the declared number of arrays, of the declared dtypes."""
    case.outputs  # noqa: B018 - computing them is the check


def expected(case: Case) -> None:
    """Check that the kernel returns the expected outputs."""
    if case.sample.returned is None:
        raise NotRun("no expected outputs are given")
    case.compare(case.outputs, case.sample.returned, "the kernel returns other than expected")


def repeatable(case: Case) -> None:
    """Check that the same call returns the same outputs again."""
    for _ in range(2):
        case.compare(case.call(), case.outputs, "called again with the same inputs, the kernel gives other outputs")


def inputs_released(case: Case) -> None:
    """Check that the kernel keeps no input, and no view of one, after the call."""
    case.call(case.lend())
    if any(array() is not None for _, array in case.lent):
        gc.collect()  # slow, and needed only for reference cycles
    for name, array in case.lent:
        if array() is not None:
            raise AssertionError(
                f"the kernel keeps its input {name!r}, or a view of it, which is valid during the call only; "
                f"keep a copy: {name}.copy()"
            )


def outputs_owned(case: Case) -> None:
    """Check that the kernel neither returns the same memory in the next call nor writes to it."""
    first, second = case.call(copies(case.arrays)), case.call(copies(case.arrays))
    for name, one, other in zip(case.names(len(first)), first, second, strict=False):
        if np.may_share_memory(one, other):
            raise AssertionError(
                f"output {name!r} of two calls is the same memory, which the kernel keeps; return a copy of it"
            )


def dtypes(case: Case) -> str:
    """Check that the kernel returns the declared outputs for every element type of its type parameters."""
    tried = []
    declared = list(case.signature.parameters(len(case.arrays)))
    for parameter in dict.fromkeys(item.type for item in declared):
        for dtype in parameter.dtypes[: len(parameter.dtypes) if len(parameter.dtypes) > 1 else 0]:
            with quiet():
                arrays = [
                    _variations.cast(array, dtype) if array is not None and item.type == parameter else array
                    for item, array in zip(declared, case.arrays, strict=True)
                ]
            try:
                case.call(arrays)
            except OutputError as error:
                raise OutputError(f"for {parameter.name} = {dtype_name(dtype)}: {error}") from error
            except Exception as error:  # raised by the user's code
                raise AssertionError(
                    f"for {parameter.name} = {dtype_name(dtype)} the kernel raises {spell_error(error)}; leave the "
                    "type out of the declaration, or handle it"
                ) from error
            tried.append(dtype_name(dtype))
    if not tried:
        raise NotRun("no input has several types")
    return ", ".join(dict.fromkeys(tried))


def optional_inputs(case: Case) -> str:
    """Check that the kernel accepts None for each optional input."""
    declared = list(case.signature.parameters(len(case.arrays)))
    positions = [i for i, item in enumerate(declared) if item.optional and case.arrays[i] is not None]
    if not positions:
        raise NotRun("the sample has no optional input")
    notes = []
    for position in positions:
        arrays = [None if index == position else array for index, array in enumerate(case.arrays)]
        notes += case.refused(f"without {declared[position].name!r}", arrays, case.attributes)
    return "; ".join(notes)


def non_contiguous(case: Case) -> None:
    """Check that inputs with other strides give the same outputs."""
    varied = list(_variations.strided(case.arrays))
    if not varied:
        raise NotRun("no input has two elements")
    for what, arrays in varied:
        case.compare(case.call(arrays), case.outputs, f"for inputs that are {what}")


def empty(case: Case) -> str:
    """Check that the kernel returns the declared outputs for inputs without elements, or rejects them."""
    return _accepted_or_refused(case, list(_variations.empty(case.arrays)))


def scalar(case: Case) -> str:
    """Check that the kernel returns the declared outputs for inputs without dimensions, or rejects them."""
    return _accepted_or_refused(case, [("without dimensions", _variations.scalar(case.arrays))])


def out_buffers(case: Case) -> None:
    """Check that the outputs are the same with `out` buffers, those that share an input's memory included."""
    if not case.signature.takes_out:
        raise NotRun("the kernel has no parameter `out`")
    aliases = [None, *case.signature.may_inplace]
    for alias in aliases:
        arrays = list(copies(case.arrays))
        buffers = [np.full_like(output, "" if output.dtype == STRING else 1) for output in case.outputs]
        what = "with out="
        if alias is not None:
            position, source = alias
            if source >= len(arrays) or arrays[source] is None or arrays[source].shape != buffers[position].shape:
                continue
            buffers[position] = arrays[source].view()
            item = case.signature.inputs[source].name
            what = f"with out= in the memory of {item!r}, which may_inplace allows,"
        out: Any = tuple(buffers) if case.signature.returns_tuple else buffers[0]
        with quiet():
            result = case.function(*views(arrays), **case.attributes, out=out)
        case.compare(case.validated(result), case.outputs, f"{what} the kernel returns other outputs")


def compiled(case: Case) -> None:
    """Check that a compiled kernel returns what its function returns as plain Python."""
    function = case.function
    if not isinstance(function, CompiledKernel):
        raise NotRun("the kernel is not declared with compile=")
    with quiet():
        result = function.plain(*views(copies(case.arrays)), **case.attributes)
    case.compare(case.outputs, case.validated(result), "compiled, the kernel gives other outputs than as plain Python")


def _identical(one: Any, other: Any) -> bool:
    return bool(one.tolist() == other.tolist() if one.dtype == STRING else one.tobytes() == other.tobytes())


def _accepted_or_refused(case: Case, varied: Sequence[tuple[str, Any]]) -> str:
    if not varied or not any(array is not None for array in case.arrays):
        raise NotRun("no input has dimensions" if case.arrays else "the op has no inputs")
    notes = []
    for what, arrays in varied:
        variation = case.vary(what, arrays)
        if variation.refusal is not None:
            notes.append(f"the kernel refuses inputs {what}: {spell_error(variation.refusal)}")
        else:
            case.validate_shapes(variation)
    return "; ".join(notes)
