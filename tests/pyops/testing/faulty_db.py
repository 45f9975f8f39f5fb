"""Faults planted in small ops, each with the name of the check that finds it.

Each op is a mistake that somebody made, in as few lines as show it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyops import Op, onnx_op
from pyops.testing import Sample

T = TypeVar("T", np.float16, np.float32, np.float64)
F32, F64, I64 = NDArray[np.float32], NDArray[np.float64], NDArray[np.int64]
X = np.array([[0.25, 1.5, -2.75], [3, 0, 1]], np.float32)


@dataclass(frozen=True)
class Fault:
    """A mistake.

    Attributes
    ----------
    check : str
        The one that finds it.
    reason : str
        What it says of it: a regular expression.
    """

    what: str
    check: str
    reason: str
    sample: Sample = field(repr=False)


FAULTS: list[Fault] = []

Planted = Op[..., Any]


def fault(
    what: str, check: str, reason: str, *inputs: Any, expected: Any = None, **attributes: Any
) -> Callable[[Planted], Planted]:
    """Decorator: the mistake that the op below it makes."""

    def plant(op: Planted) -> Planted:
        sample = Sample(op, *(inputs or (X,)), **attributes).with_id(op.name)
        FAULTS.append(Fault(what, check, reason, sample if expected is None else sample.with_expected(expected)))
        return op

    return plant


# What it returns.


@fault("a constant makes float64 of float32", "outputs", r"declared float32 and the kernel returned float64\[2, 3\]")
@onnx_op("faulty::WrongDtype")
def wrong_dtype(x: F32) -> F32:
    return x * np.array(0.5)


@fault("one of two outputs is forgotten", "outputs", "declared to return a tuple of 2 arrays")
@onnx_op("faulty::WrongCount")
def wrong_count(x: F32) -> tuple[F32, I64]:
    return x.max(-1)


@fault("a constant in the wrong precision shows for some types only", "dtypes", "for T = float16: .* returned float32")
@onnx_op("faulty::SomeDtypes")
def some_dtypes(x: NDArray[T]) -> NDArray[T]:
    return x * np.float32(0.5)


@fault("its table lacks a declared type", "dtypes", "for T = float64 the kernel raises KeyError")
@onnx_op("faulty::TableOfTypes")
def table_of_types(x: NDArray[T]) -> NDArray[T]:
    return x * {"float16": np.float16(0.5), "float32": np.float32(0.5)}[x.dtype.name]


@fault("a list without elements is float64", "empty", r"empty along .* declared float32 .* float64\[0\]")
@onnx_op("faulty::Empty")
def empty(x: F32) -> F32:
    return np.array([row.sum() for row in x])


@fault("a scalar comes back as a vector", "scalar", r"returned shapes \[1\] and the shape function gives \[\]")
@onnx_op("faulty::Scalar")
def scalar(x: F32) -> F32:
    return np.atleast_1d(x) * 2


@scalar.register_shape_inference
def _(x):
    return x


# What it does besides.


@fault("it works in place, and lifts the protection against that", "inputs_unchanged", r"input 'x'.*x\.copy\(\)")
@onnx_op("faulty::InPlace")
def in_place(x: F32) -> F32:
    x.flags.writeable = True
    x += 1
    return x.copy()


_calls = itertools.count()


@fault("it counts its calls", "repeatable", r"output 'output' .* first at \[0, 0\]")
@onnx_op("faulty::Counting")
def counting(x: F32) -> F32:
    return x + np.float32(next(_calls))


_last: list[F32] = []


@fault("it keeps a slice of its input", "inputs_released", r"keeps its input 'x'")
@onnx_op("faulty::Keeping")
def keeping(x: F32) -> F32:
    _last[:] = [x[:1]]
    return x + 1


_tables: dict[int, F32] = {}


@fault("it hands out its own table, for others to change", "outputs_owned", "return a copy")
@onnx_op("faulty::Aliasing")
def aliasing(x: F32) -> F32:
    return _tables.setdefault(x.shape[-1], np.eye(x.shape[-1], dtype=np.float32))


_scratch = np.zeros(1000, np.float32)


@fault("all threads share its scratch memory", "thread_safe", r"when another thread's call runs at .*faulty_db\.py:\d+")
@onnx_op("faulty::SharedScratch")
def shared_scratch(x: F32) -> F32:
    scratch = _scratch[: x.size]
    scratch[:] = x.ravel()
    scratch *= 2
    return scratch.reshape(x.shape).copy()


@fault("it takes elements in the order of memory for that of rows", "non_contiguous", "columns first")
@onnx_op("faulty::MemoryOrder")
def memory_order(x: F32) -> F32:
    return np.cumsum(x.ravel(order="K"), dtype=np.float32)


# What it says of shapes.


@fault("its shape function forgets to transpose", "shape_function", r"returned shapes \[3, 2\] .* gives \[2, 3\]")
@onnx_op("faulty::WrongShape")
def wrong_shape(x: F32) -> F32:
    return x.T


@wrong_shape.register_shape_inference
def _(x):
    return x


@fault("its shape function knows one size", "other_sizes", r"returned shapes \[4\] .* gives \[3\]")
@onnx_op("faulty::OneSize")
def one_size(x: F32) -> F32:
    return x.sum(0)


@one_size.register_shape_inference
def _(x):
    return x.like(shape=(3,))


@fault("its shape function takes a name for no size", "symbolic_shapes", r"gives output 'output' as float32\[size_3\]")
@onnx_op("faulty::Symbolic")
def symbolic(x: F32) -> F32:
    return x.copy()


@symbolic.register_shape_inference
def _(x):
    return x if all(isinstance(size, int) for size in x.shape) else x.like(shape=x.shape[1:])


# What it does with attributes and optional inputs.


@fault(
    "its default is not in its own table",
    "attribute_defaults",
    "with the default of 'mode'.* KeyError: 'round'",
    mode="down",
)
@onnx_op("faulty::DefaultMode")
def default_mode(x: F32, *, mode: Literal["down", "up", "round"] = "round") -> F32:
    return {"down": np.floor, "up": np.ceil}[mode](x)


@fault("an optional input has to be there", "optional_inputs", "without 'bias'.* TypeError", X, X)
@onnx_op("faulty::NotOptional")
def not_optional(x: F32, bias: F32 | None = None) -> F32:
    return x + bias


# What shows only where it runs.


@fault("with buffers it computes something else", "out_buffers", "with out= the kernel returns other outputs")
@onnx_op("faulty::OutBuffers")
def out_buffers(x: F32, *, out: F32 | None = None) -> F32:
    if out is None:
        return x * 3
    return np.multiply(x, 2, out=out)


@out_buffers.register_shape_inference
def _(x):
    return x


@fault("it counts on who owns its input's memory", "engine_native", "AttributeError: 'memoryview'")
@onnx_op("faulty::Owner")
def owner(x: F32) -> F32:
    return x * np.float32(1) if x.base is None else x * np.sign(x.base.size).astype(np.float32)


@fault(
    "it gives other numbers than its documentation",
    "expected",
    r"output 'output' \(float32\[2\]\) differs in 1 of 2 elements, first at \[1\]: 2.0 where 3.0 is expected",
    np.array([1.5, 2.5], np.float32),
    expected=[2, 3],
)
@onnx_op("faulty::Rounding")
def rounding(x: F32) -> F32:
    """Round half away from zero."""
    return np.round(x)
