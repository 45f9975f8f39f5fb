"""Random kernels and what becomes of the arrays that they return, byte by byte against the same functions in NumPy.

``python tests/stress/returned_arrays.py COUNT SEED`` runs COUNT kernels three times each: chains of NumPy calls that
return views, prefixes, inputs, tuples and `out`, keep what they made, or raise. It compares all that sessions return,
all that kernels keep, and what tracebacks refer to, and prints how many outputs were not copied.
"""

from __future__ import annotations

import random
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.errors import BorrowedArrayWarning

F32 = NDArray[np.float32]
SIZES = (1, 7, 1000, 16384, 20000, 50000, 100000)
TWO = np.float32(2)
Kernel = Callable[..., Any]


class StopError(Exception):
    """What a kernel raises."""


class Kept:
    """What kernels keep, with what it was: arrays, views, memoryviews and tracebacks must never change."""

    def __init__(self) -> None:
        self.items: list[tuple[Any, bytes]] = []

    def __call__(self, item: Any) -> Any:
        self.items.append((item, bytes(np.ascontiguousarray(item))))
        return item

    def check(self) -> None:
        for item, then in self.items:
            assert bytes(np.ascontiguousarray(item)) == then, "what a kernel kept has changed"


# Steps of a chain: each gets the array so far, another of any size, and a number.
def filled(v: F32, z: F32, a: np.float32) -> F32:
    made = np.zeros(v.size, np.float32)
    made[: v.size // 2] = v[: v.size // 2]
    return made


def written(v: F32, z: F32, a: np.float32) -> F32:
    made = np.empty(v.size, np.float32)
    return np.multiply(v, a, out=made)


def resized(v: F32, z: F32, a: np.float32) -> F32:
    made = v.copy()
    made.resize(v.size + v.size // 3, refcheck=False)
    return made


def changed(v: F32, z: F32, a: np.float32) -> F32:
    made = v.copy()
    view = made[::2]
    view += a
    made.sort()
    return made


def softmax(v: F32, z: F32, a: np.float32) -> F32:
    e = np.exp(v - v.max())
    return e / e.sum()


STEPS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    *(filled, written, resized, changed, softmax),
    lambda v, z, a: v + a,
    lambda v, z, a: v * v,
    lambda v, z, a: np.tanh(v),
    lambda v, z, a: v[::-1],
    lambda v, z, a: v[v.size // 5 :],
    lambda v, z, a: v[: v.size - v.size // 7],
    lambda v, z, a: np.zeros(v.size, np.float32) + v,
    lambda v, z, a: np.ones_like(v) - v,
    lambda v, z, a: np.concatenate([v, z[: v.size // 4]]),
    lambda v, z, a: v.reshape(1, -1).T.ravel(),
    lambda v, z, a: np.where(v > a, v, -v),
    lambda v, z, a: np.sort(v),
    lambda v, z, a: v.astype(np.float64).astype(np.float32),
    lambda v, z, a: np.cumsum(v, dtype=np.float32) / np.float32(v.size),
    lambda v, z, a: z if z.size == v.size else v,
    lambda v, z, a: np.frombuffer(v.tobytes(), np.float32),
)
weak: list[Any] = []


def watched(v: Any, keep: Kept) -> Any:
    weak.append(weakref.ref(v))
    return v


def read_only(v: Any, keep: Kept) -> Any:
    v.flags.writeable = False
    return v


# How a chain ends: each gets a new array, and what keeps what it is given.
ENDS: tuple[Callable[[Any, Kept], Any], ...] = (
    *[lambda v, keep: v] * 6,
    lambda v, keep: v.reshape(-1, 1).reshape(-1),
    lambda v, keep: v[: max(1, v.size // 2)],
    lambda v, keep: v[: max(1, v.size - 1)],
    lambda v, keep: v[v.size // 3 :],
    lambda v, keep: np.asarray(memoryview(v)),
    lambda v, keep: keep(v),
    lambda v, keep: (keep(v[3:]), v)[1],
    lambda v, keep: (keep(v[:0]), v)[1],
    lambda v, keep: (keep(memoryview(v)), v)[1],
    lambda v, keep: v.view(np.uint8).view(np.float32),
    lambda v, keep: np.lib.stride_tricks.as_strided(v, v.shape, v.strides),
    watched,
    read_only,
)


def random_kernel(chosen: random.Random) -> Kernel:
    """Return a function of two vectors that returns one, and passes what it keeps to its third argument."""
    steps = chosen.choices(STEPS, k=chosen.randrange(1, 7))
    number, end = np.float32(chosen.uniform(-1, 1)), chosen.choice(ENDS)
    keeps = [chosen.random() < 0.05 for _ in steps]
    is_plain, raises = chosen.random() < 0.2, chosen.random() < 0.05

    def kernel(x: F32, z: F32, keep: Kept) -> Any:
        v = x
        for step, keeping in zip(steps, keeps, strict=True):
            v = step(v, z, number)
            if keeping and v.base is None:
                keep(v)
        if raises:
            v = keep(v.copy())
            raise StopError
        return v if is_plain else end(v + number, keep)

    return kernel


def pair_of(kernel: Kernel, how: int) -> Kernel:
    """Return a kernel of two outputs, which may be the same array, views of one, or in a tuple that is kept."""
    tuples = []

    def pair(x: F32, z: F32, keep: Kept) -> Any:
        v = kernel(x, z, keep)
        made = ((v, v), (v, v[v.size // 2 :]), (v, v + TWO), (v + TWO, v * TWO))[how % 4]
        if how >= 4:
            tuples[:] = [made]
            list(map(keep, made))
        return made

    return pair


def into(kernel: Kernel, how: int) -> Kernel:
    """Return a kernel that writes to `out`, if there is one, and returns it, a view of it or a new array."""

    def writing(x: F32, z: F32, keep: Kept, out: F32 | None = None) -> Any:
        made = np.resize(kernel(x, z, keep), x.shape)
        if out is None or how == 0:
            return made
        out[:] = made
        return (out, out, out[:], made)[how]

    return writing


def of_same_size(kernel: Kernel) -> Kernel:
    """Return a kernel whose output has the size of its input."""

    def resizing(x: F32, z: F32, keep: Kept) -> Any:
        made = kernel(x, z, keep)
        return made if made.size == x.size else np.resize(made, x.shape)

    return resizing


current: list[Any] = [None]


@onnx_op("returned::One")
def one(x: F32, z: F32) -> F32:
    return current[0](x, z)


@onnx_op("returned::Two")
def two(x: F32, z: F32) -> tuple[F32, F32]:
    return current[0](x, z)


@onnx_op("returned::Into")
def write_into(x: F32, z: F32, *, out: F32 | None = None) -> F32:
    return current[0](x, z, out=out)


@write_into.register_shape_inference
def _(x: Any, z: Any) -> Any:
    return x


@onnx_op("returned::Same")
def same(x: F32, z: F32) -> F32:
    return current[0](x, z)


@onnx_op("returned::Next", may_inplace={"output": "x"})
def after(x: F32) -> F32:
    return x + TWO


# ONNX Runtime computes in place where it knows that shapes are the same.
same.register_shape_inference(lambda x, z: x)
after.register_shape_inference(lambda x: x)


def session(outputs: str, body: str) -> pyops.InferenceSession:
    text = f"""<ir_version: 10, opset_import: ["": 20, "returned": 1]>
    g (float[n] x, float[n] z) => ({outputs}) {{ {body} }}"""
    return pyops.InferenceSession(onnx.parser.parse_model(text))


# Built-in nodes work in place on what the op returned, share it, and are followed by another op.
CHAIN = """y = returned.Same(x, z)  a = Neg(y)  b = returned.Next(a)  c = Abs(b)  flat = Identity(c)
    v = Reshape(flat, shape)  w = returned.Next(b)"""
SHAPED = f"<int64[2] shape = {{1, -1}}> {{ {CHAIN} }}"


def forms(chosen: random.Random, kernel: Kernel) -> Iterator[tuple[str, Kernel, Callable[[Any], list[Any]]]]:
    """Yield the session that a kernel runs in, the kernel, and what the session makes of what it returns."""
    yield "one", kernel, lambda made: [made]
    yield "two", pair_of(kernel, chosen.randrange(6)), list
    yield "into", into(kernel, chosen.randrange(4)), lambda made: [made]
    yield "chain", of_same_size(kernel), lambda made: [np.abs(-made + TWO)[None], -made + TWO + TWO]


def run(count: int, seed: int) -> str:
    """Run random kernels; return what was found."""
    chosen = random.Random(seed)
    sessions = {
        "one": session("float[m] y", "y = returned.One(x, z)"),
        "two": session("float[m] y, float[k] w", "y, w = returned.Two(x, z)"),
        "into": session("float[m] y", "y = returned.Into(x, z)"),
        "chain": pyops.InferenceSession(
            onnx.parser.parse_model(
                f"""<ir_version: 10, opset_import: ["": 20, "returned": 1]>
                g (float[n] x, float[n] z) => (float[a, b] v, float[m] w) {SHAPED}"""
            )
        ),
    }
    outputs = not_copied = raised = 0
    kept, addresses = Kept(), set()
    for number in range(count):
        name, kernel, made_of = list(forms(chosen, random_kernel(chosen)))[number % 4]
        size = chosen.choice(SIZES)

        def called(x: F32, z: F32, kernel: Kernel = kernel, **out: Any) -> Any:
            made = kernel(x, z, kept, **out)
            addresses.update(array.ctypes.data for array in (made if type(made) is tuple else (made,)))
            return made

        current[0] = called
        for turn in range(3):
            random_numbers = np.random.default_rng([seed, number, turn])
            x, z = (random_numbers.standard_normal(size, np.float32) for _ in range(2))
            addresses.clear()
            try:
                wanted = made_of(kernel(x.copy(), z.copy(), Kept()))
            except StopError:
                wanted = None
            try:
                got = sessions[name].run(None, {"x": x, "z": z})
            except StopError as error:
                assert wanted is None
                kept(np.concatenate([np.ravel(array) for array in arrays_of(error)]))
                raised += 1
                continue
            assert wanted is not None
            for found, expected in zip(got, wanted, strict=True):
                assert found.shape == expected.shape, (seed, number, turn)
                assert found.tobytes() == expected.tobytes(), (seed, number, turn, name)
                outputs += 1
                not_copied += found.ctypes.data in addresses
            if chosen.random() < 0.05:
                kept(got[0])
        if number % 50 == 49:
            kept.check()
            del kept.items[: len(kept.items) // 2], weak[:]
    kept.check()
    return f"{count} arrays, {outputs} outputs, of which {not_copied} were not copied; {raised} calls raised"


def arrays_of(error: BaseException) -> list[Any]:
    """Return the arrays that the innermost frame of a traceback refers to."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    assert traceback is not None
    return [item for item in traceback.tb_frame.f_locals.values() if isinstance(item, np.ndarray)]


if __name__ == "__main__":
    warnings.simplefilter("ignore", BorrowedArrayWarning)
    np.seterr(all="ignore")
    print(run(int(sys.argv[1]), int(sys.argv[2])))
