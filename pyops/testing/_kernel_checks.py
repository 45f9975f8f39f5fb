"""Checks of the kernel called as a plain function, and of the shape function against what it returns."""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._machine.compiled.compiled_kernel import CompiledKernel
from .._machine.compiled.specialization import HALVES, as_stored
from .._support.element_types import STRING, describe
from ..errors import ShapeInferenceError, UnknownSizeError
from ..shapes import RuntimeDim, SymbolicDim, TensorSpec
from . import _variations
from ._case import Case, NotRun, Variation, check_after, copies, format_error, quiet


@check_after()
def inputs_unchanged(case: Case) -> None:
    """Check that the kernel does not write into its inputs."""
    for writable in (True, False):
        arrays = case.lend()
        views = _variations.each(arrays, lambda array: array.view())
        for view in views:
            if view is not None:
                view.flags.writeable = writable
        try:
            with quiet():
                case.function(*views, **case.attributes)
        except (Exception, SystemExit):
            # The next check reports it; this one looks at what the kernel wrote before it raised.
            pass
        for item, before, after in zip(case.signature.parameters(len(arrays)), case.arrays, arrays, strict=True):
            if before is not None and not _identical(before, after):
                raise AssertionError(f"the kernel changes its input {item.name!r}; work on a copy: {item.name}.copy()")


@check_after("inputs_unchanged")
def outputs(case: Case) -> None:
    """Check that the kernel returns the declared number of arrays, of the declared dtypes."""
    case.outputs  # noqa: B018 - computing them is the check


@check_after("outputs")
def repeatable(case: Case) -> None:
    """Check that the same call returns the same outputs again."""
    for _ in range(2):
        case.compare(case.call(), case.outputs, "called again with the same inputs, the kernel gives other outputs")


@check_after("repeatable")
def expected(case: Case) -> None:
    """Check that the kernel returns the expected outputs."""
    if case.sample.returned is None:
        raise NotRun("no expected outputs are given")
    case.compare(case.outputs, case.sample.returned, "the kernel returns other outputs than expected")


@check_after("outputs")
def inputs_released(case: Case) -> None:
    """Check that the kernel keeps no input, and no view of one, after the call."""
    case.call(case.lend())
    if any(array() is not None for _, array in case.lent):
        gc.collect()  # slow, and needed only for reference cycles
    for name, array in case.lent:
        if array() is not None:
            raise AssertionError(
                f"the kernel keeps its input {name!r}, or a view of it, which is valid only during the call; "
                f"keep a copy: {name}.copy()"
            )


@check_after("outputs")
def outputs_owned(case: Case) -> None:
    """Check that the kernel neither returns the same memory in the next call nor writes to it."""
    first, second = case.call(copies(case.arrays)), case.call(copies(case.arrays))
    for name, one, other in zip(case.names(len(first)), first, second, strict=False):
        if np.may_share_memory(one, other):
            raise AssertionError(
                f"output {name!r} of two calls is the same memory, which the kernel keeps; return a copy of it"
            )


@check_after("outputs")
def dtypes(case: Case) -> str:
    """Check that the kernel returns the declared outputs for every element type of its type parameters."""
    tried = []
    for what, arrays in case.other_types():
        refusal = case.vary(what, arrays).refusal
        if refusal is not None:
            raise AssertionError(
                f"{what} the kernel raises {format_error(refusal)}; leave the type out of the declaration, or handle it"
            ) from refusal
        tried.append(what.rpartition(" ")[2])
    if not tried:
        raise NotRun("no input has several types")
    return ", ".join(dict.fromkeys(tried))


@check_after("outputs")
def optional_inputs(case: Case) -> str:
    """Check that the kernel accepts None for each optional input."""
    calls = case.without_optional()
    if not calls:
        raise NotRun("the sample has no optional input")
    return "; ".join(note for call in calls for note in case.note_refusal(*call))


@check_after("outputs")
def attribute_defaults(case: Case) -> str:
    """Check that the kernel accepts the default of each attribute that the sample gives."""
    given = case.sample.attributes
    optional = [a.name for a in case.signature.attributes if a.name in given and not a.required]
    if not optional:
        raise NotRun("the sample gives no attribute that has a default")
    notes = []
    for name in optional:
        others = {other: value for other, value in given.items() if other != name}
        attributes = case.signature.convert_attributes(others)
        notes += case.note_refusal(f"with the default of {name!r}", case.arrays, attributes)
    return "; ".join(notes)


@check_after("repeatable")
def non_contiguous(case: Case) -> None:
    """Check that inputs with other strides give the same outputs."""
    varied = list(_variations.strided(case.arrays))
    if not varied:
        raise NotRun("no input has two elements")
    for what, arrays in varied:
        case.compare(case.call(arrays), case.outputs, f"for inputs that are {what}")


@check_after("repeatable")
def out_buffers(case: Case) -> str:
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
        outputs = case.call(arrays, wrap=functools.partial(functools.partial, out=out))
        case.compare(outputs, case.outputs, f"{what} the kernel returns other outputs")
    return "" if case.op.shape_function else "sessions pass out=None: no shape function is registered"


@check_after("repeatable")
def compiled(case: Case) -> None:
    """Check that a compiled kernel returns what its function returns as plain Python, for other sizes too.

    float16 and bfloat16 are computed in float32 and rounded once, as in the compiled kernel.
    """
    if not isinstance(case.op.kernels["cpu"], CompiledKernel):
        raise NotRun("the kernel is not declared with compile=")
    varied = [case.vary(what, arrays) for what, arrays in _variations.empty(case.arrays)]
    for variation in [Variation("for the sample's inputs", case.arrays, case.outputs), *case.other_sizes, *varied]:
        if variation.outputs is None:
            continue
        try:
            plain = case.call(variation.arrays, wrap=_in_float32)
        except Exception as error:  # a kernel may reject its inputs with any exception
            raise AssertionError(
                f"the compiled kernel takes inputs that the plain function refuses with {format_error(error)}: "
                f"{variation}"
            ) from error
        what = f"the compiled kernel gives other outputs than the plain function {variation}"
        case.compare(variation.outputs, plain, what)


def _in_float32(kernel: Any) -> Callable[..., Any]:
    """Return the plain kernel, computing as the compiled one: float16 and bfloat16 in float32, rounded at the end."""

    def widened(value: Any) -> Any:
        return value if as_stored(value) is value else value.astype(np.float32)

    def plain(*inputs: Any, **attributes: Any) -> Any:
        dtypes = kernel.output_dtypes(inputs)
        given = {name: widened(value) for name, value in attributes.items()}
        results = kernel.plain(*map(widened, inputs), **given)
        if not any(dtype.name in HALVES for dtype in dtypes):
            return results
        several = results if isinstance(results, tuple) else (results,)
        padded = itertools.chain(dtypes, itertools.repeat(dtypes[-1]))
        rounded = tuple(np.asarray(result).astype(dtype) for result, dtype in zip(several, padded, strict=False))
        return rounded if isinstance(results, tuple) else rounded[0]

    return plain


@check_after("outputs")
def shape_function(case: Case) -> None:
    """Check that the shape function gives the shapes and dtypes that the kernel returns."""
    _require(case)
    case.validate_shapes(Variation("for the sample's inputs", case.arrays, case.outputs))


@check_after("shape_function")
def other_sizes(case: Case) -> str:
    """Check that the kernel and the shape function agree for inputs of other sizes."""
    if not case.other_sizes:
        raise NotRun("the kernel takes no inputs of other sizes" if case.arrays else "the op has no inputs")
    if case.op.shape_function is not None:
        for variation in case.other_sizes:
            case.validate_shapes(variation)
    return f"{len(case.other_sizes)} others"


@check_after("other_sizes")
def symbolic_shapes(case: Case) -> str:
    """Check that the shape function gives the right shapes for named dimensions."""
    _require(case)
    notes: dict[str, None] = {}
    for variation in [Variation("for the sample's inputs", case.arrays, case.outputs), *case.other_sizes]:
        try:
            _validate_symbolic(case, variation)
        except UnknownSizeError:
            notes["the shape function needs known sizes"] = None
    return "; ".join(notes)


@check_after("other_sizes")
def empty(case: Case) -> str:
    """Check that the kernel returns the declared outputs for inputs without elements, or rejects them."""
    return _accepted_or_refused(case, list(_variations.empty(case.arrays)))


@check_after("other_sizes")
def scalar(case: Case) -> str:
    """Check that the kernel returns the declared outputs for inputs without dimensions, or rejects them."""
    return _accepted_or_refused(case, [("without dimensions", _variations.scalar(case.arrays))])


def _require(case: Case) -> None:
    if case.op.shape_function is None:
        raise NotRun(f"no shape function is registered (@{case.op.__name__}.register_shape_inference)")


def _validate_symbolic(case: Case, variation: Variation) -> None:
    specs: list[TensorSpec | None] = []
    for array in variation.arrays:
        # Equal sizes get the same name, as in a model with named dimensions.
        dims = None if array is None else tuple(SymbolicDim(f"size_{size}") for size in array.shape)
        specs.append(None if dims is None else TensorSpec(dims, array.dtype))
    where = f"for {', '.join('None' if spec is None else str(spec) for spec in specs)}"
    try:
        results = case.op.infer_shapes(*specs, **case.attributes)
    except UnknownSizeError:
        raise
    except Exception as error:  # raised by the user's code
        raise ShapeInferenceError(
            f"{where}, whose sizes are known only at run time, the shape function raises {format_error(error)}"
        ) from error
    outputs = variation.outputs or ()
    if len(results) != len(outputs):
        raise AssertionError(
            f"{where} the shape function gives {len(results)} outputs; the kernel returns {len(outputs)}"
        )
    for name, spec, output in zip(case.names(len(results)), results, outputs, strict=True):
        if spec.ndim != output.ndim or not all(map(_fits, spec.shape, output.shape)):
            raise AssertionError(
                f"{where} the shape function gives output {name!r} as {spec}; for "
                f"{', '.join(map(describe, variation.arrays))} the kernel returns {describe(output)}"
            )


def _fits(dim: Any, size: int) -> bool:
    if isinstance(dim, RuntimeDim):
        return True
    if isinstance(dim, SymbolicDim):
        return bool(eval(dim.name, {"__builtins__": {}}, _Sizes()) == size)
    return bool(dim == size)


class _Sizes(dict[str, int]):
    """Variables of a dimension's expression: ``size_3`` is 3."""

    def __missing__(self, name: str) -> int:
        return int(name.removeprefix("size_"))


def _accepted_or_refused(case: Case, varied: Sequence[tuple[str, Any]]) -> str:
    if not varied or not any(array is not None for array in case.arrays):
        raise NotRun("no input has dimensions" if case.arrays else "the op has no inputs")
    notes = []
    for what, arrays in varied:
        variation = case.vary(what, arrays)
        if variation.refusal is not None:
            notes.append(f"the kernel refuses inputs {what}: {format_error(variation.refusal)}")
        else:
            case.validate_shapes(variation)
    return "; ".join(notes)


def _identical(one: Any, other: Any) -> bool:
    return bool(one.tolist() == other.tolist() if one.dtype == STRING else one.tobytes() == other.tobytes())
