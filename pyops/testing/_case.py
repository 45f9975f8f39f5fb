"""What checks look at: a sample, calls of its kernel, and other inputs made from its own."""

from __future__ import annotations

import contextlib
import functools
import importlib
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._comparison import first_difference
from .._ops.op import output_shapes
from .._schema import validation
from .._schema.dtypes import describe
from ..errors import CompileError, OutputError, ShapeInferenceError
from . import _variations
from ._outputs import Outputs
from ._sample import Sample

# What a kernel raises that was not written for what it got, rather than one that refuses it.
_MISTAKES = (TypeError, AttributeError, NameError, KeyError)

NO_HYPOTHESIS = 'generated inputs need hypothesis, which is not installed: pip install "onnx-pyops[testing]"'
NO_ONNXRUNTIME = 'ONNX Runtime is not installed: pip install "onnx-pyops[cpu]"'


class NotRun(Exception):  # noqa: N818 - it is no error
    """What a check raises that has nothing to look at; the message says why."""


@dataclass(frozen=True)
class Variation:
    """Other inputs, and what the kernel makes of them.

    Attributes
    ----------
    what : str
        How they differ from the sample's.
    outputs : Outputs or None
        None where the kernel refuses them.
    refusal : Exception or None
        With which it does.
    """

    what: str
    arrays: tuple[Any, ...]
    outputs: Outputs | None
    refusal: Exception | None = None

    def __str__(self) -> str:
        return f"{self.what} ({', '.join(map(describe, self.arrays))})"


class Case:
    """A sample under check.

    Attributes
    ----------
    arrays : tuple
        The sample's inputs: contiguous, and this case's own.
    generate : int
        How many samples to make up besides.
    lent : list
        A weak reference to each array that `lend` gave.
    """

    def __init__(self, sample: Sample, generate: int = 0, rtol: float | None = None, atol: float | None = None) -> None:
        self.sample = sample
        self.op = sample.op
        self.signature = sample.op.signature
        self.arrays = copies(sample.inputs)
        self.generate = generate
        self.lent: list[tuple[str, weakref.ref[Any]]] = []
        self.rtol, self.atol = rtol, atol

    @property
    def attributes(self) -> dict[str, Any]:
        """Every attribute as the kernel gets it; lists are new each time, since it may change them."""
        return self.signature.convert_attributes(self.sample.attributes)

    @property
    def function(self) -> Callable[..., Any]:
        """The CPU kernel."""
        return self.op.kernels["cpu"]

    def call(self, arrays: Sequence[Any] | None = None, attributes: Mapping[str, Any] | None = None) -> Outputs:
        """Run the CPU kernel and hold its outputs against the declaration, but not against the shape function."""
        given = self.arrays if arrays is None else arrays
        with quiet():
            values = self.attributes if attributes is None else attributes
            return Outputs(validation.call(self.signature, self.function, given, values))

    def lend(self) -> tuple[Any, ...]:
        """Copies of the sample's inputs for one call, of which is known later whether the kernel keeps one."""
        arrays = copies(self.arrays)
        for item, array in zip(self.signature.parameters(len(arrays)), arrays, strict=True):
            if array is not None:
                self.lent.append((item.name, weakref.ref(array)))
        return arrays

    def checked(self, result: Any, arrays: Sequence[Any] | None = None) -> Outputs:
        """What the kernel's function returned for inputs (the sample's unless given), held against the declaration."""
        given = self.arrays if arrays is None else arrays
        dtypes = validation.output_dtypes(self.signature, [None if array is None else array.dtype for array in given])
        return Outputs(validation.check_outputs(self.signature, dtypes, result))

    @functools.cached_property
    def outputs(self) -> Outputs:
        """What the kernel returns for the sample."""
        return self.call()

    def names(self, count: int) -> list[str]:
        """The names of `count` outputs."""
        last = len(self.signature.outputs) - 1
        names = [self.signature.output(index).name for index in range(count)]
        variadic = self.signature.outputs[-1].variadic
        return [f"{name}[{index - last}]" if variadic and index >= last else name for index, name in enumerate(names)]

    def compare(self, actual: Sequence[Any], expected: Sequence[Any], what: str) -> None:
        """Raise an AssertionError that starts with `what`, unless the outputs are close."""
        problem = first_difference(actual, expected, self.names(len(expected)), self.rtol, self.atol)
        if problem is not None:
            raise AssertionError(f"{what}: {problem}")

    def refused(self, what: str, arrays: Sequence[Any], attributes: Mapping[str, Any]) -> list[str]:
        """A note where the kernel refuses a call that the declaration allows.

        Raises
        ------
        OutputError or CompileError
            Of such a call.
        AssertionError
            The kernel is not prepared for it.
        """
        try:
            self.call(arrays, attributes)
        except (OutputError, CompileError) as error:
            raise type(error)(f"{what}: {error}") from error
        except _MISTAKES as error:
            raise AssertionError(
                f"{what}, which the declaration allows, the kernel raises {spell_error(error)}"
            ) from error
        except Exception as error:  # a kernel refuses by whatever it raises
            return [f"{what} the kernel refuses: {spell_error(error)}"]
        return []

    def hold_shapes(self, variation: Variation) -> None:
        """Raise an OutputError or ShapeInferenceError unless the shape function, if there is one, gives its shapes."""
        if self.op.shape_function is None or variation.outputs is None:
            return
        try:
            shapes = output_shapes(self.op, variation.arrays, self.attributes)
        except ShapeInferenceError:
            raise
        except Exception as error:  # of the user's code
            raise ShapeInferenceError(
                f"{variation}: the kernel takes them, and the shape function raises {spell_error(error)}"
            ) from error
        validation.check_shapes(self.signature, shapes, variation.outputs, variation.arrays)

    def vary(self, what: str, arrays: Sequence[Any]) -> Variation:
        """Run the kernel on other inputs.

        Raises
        ------
        OutputError
            It returns something other than declared.
        """
        arrays = tuple(arrays)
        try:
            return Variation(what, arrays, self.call(arrays))
        except OutputError as error:
            raise OutputError(f"{what} ({', '.join(map(describe, arrays))}): {error}") from error
        except Exception as error:  # a kernel refuses by whatever it raises
            return Variation(what, arrays, None, error)

    @functools.cached_property
    def other_sizes(self) -> list[Variation]:
        """Inputs of other sizes that the kernel takes."""
        varied = [self.vary(what, arrays) for what, arrays in _variations.other_sizes(self.arrays)]
        return [variation for variation in varied if variation.outputs is not None]


def is_installed(module: str) -> bool:
    """Whether a module can be imported, which it then is."""
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def copies(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Contiguous copies of arrays; None stays."""
    return _variations.each(arrays, functools.partial(np.array, order="C"))


def views(arrays: Sequence[Any], writable: bool = False) -> tuple[Any, ...]:
    """Views of arrays: read-only, as kernels get them, unless `writable`; None stays."""

    def view(array: Any) -> Any:
        found = array.view()
        found.flags.writeable = writable
        return found

    return _variations.each(arrays, view)


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings: inputs that are made up divide by zero and overflow."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def spell_error(error: BaseException) -> str:
    """An exception in one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def hide_own_frames(error: BaseException) -> None:
    """Cut the frames of pyops that lead to a kernel from the traceback of an exception, and of those behind it."""
    item: BaseException | None = error
    while item is not None:
        step = item.__traceback__
        while step is not None and _is_own(step.tb_frame.f_globals.get("__name__") or ""):
            step = step.tb_next
        with contextlib.suppress(Exception):  # an exception may forbid that it is changed
            item.__traceback__ = step
        item = item.__cause__


def _is_own(module: str) -> bool:
    return module.startswith("pyops.") and not module.startswith("pyops.kernels.")
