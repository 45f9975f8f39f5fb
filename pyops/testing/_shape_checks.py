"""Checks of shapes: the shape function against what the kernel returns, for inputs of other sizes too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._schema.dtypes import describe
from .._schema.specs import RuntimeDim, SymbolicDim, TensorSpec
from ..errors import ShapeInferenceError, UnknownSizeError
from . import _variations
from ._case import Case, NotRun, Variation, check_after, spell_error


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
            notes["it needs to know sizes"] = None
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
            f"{where}, whose sizes are known at run time only, the shape function raises {spell_error(error)}"
        ) from error
    outputs = variation.outputs or ()
    if len(results) != len(outputs):
        raise AssertionError(f"{where} the shape function gives {len(results)} outputs; the kernel {len(outputs)}")
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
            notes.append(f"the kernel refuses inputs {what}: {spell_error(variation.refusal)}")
        else:
            case.validate_shapes(variation)
    return "; ".join(notes)
