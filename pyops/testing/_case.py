"""What a check is, and the case that every check gets: a sample, and the results of its kernel."""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core import States, check_output_shapes, run_kernel
from .._support.element_types import describe, dtype_name
from .._tolerances import Outputs, first_difference
from ..errors import CompileError, DeviceError, EngineError, MissingDependencyError, OutputError, ShapeInferenceError
from . import _variations
from ._sample import Sample, value_names

# Exceptions of a kernel that point to a bug in it, where the declaration allows the call.
_MISTAKES = (TypeError, AttributeError, NameError, KeyError, CompileError)

NO_HYPOTHESIS = 'generated inputs need hypothesis, which is not installed: pip install "onnx-pyops[testing]"'

_LONGEST = 1000

IN_SESSIONS = ("repeatable", "shape_function", "out_buffers", "non_contiguous", "compiled")
"""The checks that must pass before checks that run the op outside of a plain call."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes
    ----------
    run : callable
        Runs the check and returns a note for the report, or None. It raises `NotRun` where there is nothing to
        check, and any other exception where the check fails.
    needs : tuple of str
        Checks that run first. If one of them, or one that it needs, fails, this check is not run: it would report the
        same fault again.
    """

    run: Callable[[Case], str | None]
    needs: tuple[str, ...]


def check_after(*needs: str) -> Callable[[Callable[[Case], str | None]], Check]:
    """Return a decorator that makes a `Check` of a function; the check is named after it."""
    return lambda run: Check(run, needs)


class NotRun(Exception):  # noqa: N818 - not an error
    """Raised by a check that has nothing to check; the message is the reason."""


@contextmanager
def where_available() -> Iterator[None]:
    """Context manager: without a package, an engine or a GPU that the block needs, the check is not run."""
    try:
        yield
    except (DeviceError, EngineError, MissingDependencyError) as error:
        raise NotRun(str(error).splitlines()[-1].lstrip(" -")) from None


@dataclass(frozen=True)
class Variation:
    """Inputs derived from the sample's, and the outputs of the kernel for them.

    Attributes
    ----------
    what : str
        How the inputs differ from the sample's.
    outputs : Outputs or None
        None if the kernel rejects the inputs.
    refusal : Exception or None
        The exception with which the kernel rejects them.
    """

    what: str
    arrays: tuple[Any, ...]
    outputs: Outputs | None
    refusal: Exception | None = None

    def __str__(self) -> str:
        return f"{self.what} ({', '.join(map(describe, self.arrays))})"


class Case:
    """A sample that is being checked.

    Attributes
    ----------
    arrays : tuple
        Contiguous copies of the sample's inputs.
    generate : int or hypothesis strategy
        The number of further samples to generate, or a strategy for them.
    lent : list
        The input name of each array that `lend` returned, and a weak reference to the array.
    """

    def __init__(self, sample: Sample, generate: Any = 0, rtol: float | None = None, atol: float | None = None) -> None:
        self.sample = sample
        self.op = sample.op
        self.signature = sample.op.signature
        self.arrays = copies(sample.inputs)
        self.generate = generate
        self.lent: list[tuple[str, weakref.ref[Any]]] = []
        self.rtol, self.atol = rtol, atol
        self.states = States()

    @property
    def attributes(self) -> dict[str, Any]:
        """Return all attributes as the kernel gets them; lists are new each time, because a kernel may change them."""
        return self.signature.convert_attributes(self.sample.attributes)

    @property
    def function(self) -> Callable[..., Any]:
        """Return the CPU kernel, which gets the same state in all calls with the same attributes, as in a session."""
        kernel = self.op.kernels["cpu"]
        is_stateful = self.signature.takes_state
        return functools.partial(kernel, state=self.states(self.op, self.attributes)) if is_stateful else kernel

    def call(
        self,
        arrays: Sequence[Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    ) -> Outputs:
        """Run the CPU kernel, or what `wrap` makes of it, and validate its outputs, but not against the shape function.

        It gets the same state in all calls with the same attributes, as in a session.
        """
        given = self.arrays if arrays is None else arrays
        values = self.attributes if attributes is None else attributes
        with quiet():
            return Outputs(run_kernel(self.op, given, values, state=self.states, wrap=wrap))

    def lend(self) -> tuple[Any, ...]:
        """Copy the sample's inputs for one call, with weak references that later show whether the kernel kept one."""
        arrays = copies(self.arrays)
        for item, array in zip(self.signature.parameters(len(arrays)), arrays, strict=True):
            if array is not None:
                self.lent.append((item.name, weakref.ref(array)))
        return arrays

    @functools.cached_property
    def outputs(self) -> Outputs:
        """Return the outputs of the kernel for the sample."""
        return self.call()

    def names(self, count: int) -> list[str]:
        """Return the names of the first `count` outputs."""
        return value_names(self.signature.outputs, count)

    def compare(self, actual: Sequence[Any], expected: Sequence[Any], what: str) -> None:
        """Raise an AssertionError that starts with `what` unless the outputs are close."""
        problem = first_difference(actual, expected, self.names(len(expected)), self.rtol, self.atol)
        if problem is not None:
            raise AssertionError(f"{what}: {problem}")

    def note_refusal(self, what: str, arrays: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> list[str]:
        """Run a call that the declaration allows, and return a note if the kernel rejects it.

        Raises
        ------
        OutputError
            The outputs do not match the declaration.
        AssertionError
            The kernel raises a TypeError or the like, which is a bug rather than a rejection.
        """
        refusal = self.vary(what, arrays, attributes).refusal
        if isinstance(refusal, _MISTAKES):
            raise AssertionError(
                f"{what}, which the declaration allows, the kernel raises {format_error(refusal)}"
            ) from refusal
        return [] if refusal is None else [f"{what} the kernel refuses: {format_error(refusal)}"]

    def validate_shapes(self, variation: Variation) -> None:
        """Raise an OutputError or ShapeInferenceError unless the shape function, if any, gives the right shapes.

        It must do so with the values of the inputs and without them.
        """
        function, arrays, outputs = self.op.shape_function, variation.arrays, variation.outputs
        if function is None or outputs is None:
            return
        for with_values in (True, False):
            try:
                check_output_shapes(self.signature, function, arrays, self.attributes, outputs, with_values)
            except (OutputError, ShapeInferenceError):
                raise
            except Exception as error:  # raised by the user's code
                unknown = "" if with_values else " where no value is known (spec.value is None)"
                raise ShapeInferenceError(
                    f"{variation}: the kernel takes them, but the shape function raises {format_error(error)}{unknown}"
                ) from error

    def vary(self, what: str, arrays: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> Variation:
        """Run the kernel on other inputs, or with other attributes.

        Raises
        ------
        OutputError
            The outputs do not match the declaration.
        """
        arrays = tuple(arrays)
        try:
            return Variation(what, arrays, self.call(arrays, attributes))
        except OutputError as error:
            raise OutputError(f"{what}: {error}") from error
        except Exception as error:  # a kernel may reject its inputs with any exception
            return Variation(what, arrays, None, error)

    def with_input(self, position: int, array: Any) -> tuple[Any, ...]:
        """Return the sample's inputs with another one at a position."""
        return (*self.arrays[:position], array, *self.arrays[position + 1 :])

    def without_optional(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the sample's inputs without each of the optional ones, and which one that is."""
        declared = enumerate(zip(self.signature.parameters(len(self.arrays)), self.arrays, strict=True))
        positions = {position: item.name for position, (item, array) in declared if item.optional and array is not None}
        return [(f"without {name!r}", self.with_input(position, None)) for position, name in positions.items()]

    def other_types(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the sample's inputs in every element type of each type parameter, and which type that is."""
        declared = list(zip(self.signature.parameters(len(self.arrays)), self.arrays, strict=True))
        varied = []
        for parameter in dict.fromkeys(item.type for item, _ in declared if len(item.type.dtypes) > 1):
            for dtype in parameter.dtypes:
                with quiet():
                    arrays = [
                        _variations.cast(array, dtype) if array is not None and item.type == parameter else array
                        for item, array in declared
                    ]
                varied.append((f"for {parameter.name} = {dtype_name(dtype)}", tuple(arrays)))
        return varied

    @functools.cached_property
    def other_sizes(self) -> list[Variation]:
        """Return the variations with other sizes that the kernel accepts."""
        varied = [self.vary(what, arrays) for what, arrays in _variations.other_sizes(self.arrays)]
        return [variation for variation in varied if variation.outputs is not None]


def copies(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Copy arrays to contiguous memory; None stays None."""
    return _variations.each(arrays, functools.partial(np.array, order="C"))


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings: generated inputs divide by zero and overflow."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def format_error(error: BaseException) -> str:
    """Format an exception as one line, without the middle of a very long text: numbers and causes come last."""
    text = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def hide_own_frames(error: BaseException) -> None:
    """Cut the frames of pyops that lead to a kernel from the traceback of an exception, and of its causes."""
    item: BaseException | None = error
    while item is not None:
        step = item.__traceback__
        while step is not None and str(step.tb_frame.f_globals.get("__name__")).startswith(
            ("pyops._", "pyops.testing")
        ):
            step = step.tb_next
        with contextlib.suppress(Exception):  # an exception may reject changes
            item.__traceback__ = step
        item = item.__cause__
