"""``out=``: ONNX Runtime's own output buffers, to which kernels write."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.errors import BorrowedArrayWarning, DeclarationError
from pyops.shapes import new_dim

F32 = NDArray[np.float32]
X = np.arange(6, dtype=np.float32)


def session_for(body: str, outputs: str = "float[m] y") -> pyops.InferenceSession:
    text = f'<ir_version: 8, opset_import: ["" : 17, "out" : 1]> g (float[6] x) => ({outputs}) {{ {body} }}'
    return pyops.InferenceSession(onnx.parser.parse_model(text))


def test_the_kernel_gets_a_buffer_of_the_inferred_shape_and_what_it_writes_comes_out() -> None:
    seen = []

    @onnx_op("out::Double")
    def double(x: F32, *, out: F32 | None = None) -> F32:
        seen.append(out is not None and (out.shape, out.dtype, out.flags.writeable))
        return np.multiply(x, 2, out=out)

    @double.register_shape_inference
    def _(x: Any) -> Any:
        return x

    assert session_for("y = out.Double(x)").run(None, {"x": X})[0].tolist() == (X * 2).tolist()
    assert seen == [((6,), np.float32, True)]
    assert double(X).tolist() == (X * 2).tolist()


@pytest.mark.parametrize("shape", [None, "run time"])
def test_where_the_shape_is_not_known_it_gets_none(shape: str | None) -> None:
    seen = []

    @onnx_op("out::Double")
    def double(x: F32, *, out: F32 | None = None) -> F32:
        seen.append(out)
        return x * 2

    if shape:
        double.register_shape_inference(lambda x: x.like(shape=(new_dim(),)))
    assert session_for("y = out.Double(x)").run(None, {"x": X})[0].tolist() == (X * 2).tolist()
    assert seen == [None]


def test_shapes_are_inferred_once_unless_there_were_hundreds_since() -> None:
    seen = []

    @onnx_op("out::Double")
    def double(x: F32, *, out: F32 | None = None) -> F32:
        return np.multiply(x, 2, out=out)

    @double.register_shape_inference
    def _(x: Any) -> Any:
        seen.append(x.shape)
        return x

    text = '<ir_version: 8, opset_import: ["" : 17, "out" : 1]> g (float[n] x) => (float[n] y) { y = out.Double(x) }'
    session = pyops.InferenceSession(onnx.parser.parse_model(text))
    sizes = [*range(300), 299, 0]
    for size in sizes:
        assert session.run(None, {"x": np.ones(size, np.float32)})[0].tolist() == [2] * size
    assert [shape for shape in seen if shape in {(0,), (299,)}] == [(0,), (299,), (0,)]


def test_what_is_returned_and_is_not_out_is_copied() -> None:
    @onnx_op("out::Ignore")
    def ignore(x: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
        assert out is not None
        out[0][...] = 99
        np.negative(x, out=out[1])
        return x + 1, out[1]

    ignore.register_shape_inference(lambda x: (x, x))
    session = session_for("y, z = out.Ignore(x)", "float[a] y, float[b] z")
    y, z = session.run(None, {"x": X})
    assert (y.tolist(), z.tolist()) == ((X + 1).tolist(), (-X).tolist())


def test_the_buffer_of_an_output_that_the_model_does_not_use_is_other_memory() -> None:
    @onnx_op("out::Pair")
    def pair(x: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
        assert out is not None
        out[0][...], out[1][...] = x, 7
        return out

    pair.register_shape_inference(lambda x: (x, x))
    assert session_for("y = out.Pair(x)").run(None, {"x": X})[0].tolist() == X.tolist()


@pytest.mark.parametrize("machine_code", ["0", "1"])
@pytest.mark.parametrize("size", [6, 0])
def test_values_in_memory_that_the_kernel_gave_to_out_come_out(
    size: int, machine_code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYOPS_DIRECT_CALLS", machine_code)

    def replace(array: Any, values: Any) -> Any:
        array.__setstate__((1, values.shape, values.dtype, False, values.tobytes()))
        return array

    @onnx_op("out::One")
    def one(x: F32, *, out: F32 | None = None) -> F32:
        return replace(out, x + 1)

    @onnx_op("out::Two")
    def two(x: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
        assert out is not None
        first, second = out
        second[...] = x * 3
        if swapping:  # a view of the first buffer becomes the second output
            second[...], seen = 0, first[:]
            seen[...] = x * 3
            return replace(first, x * 2), seen
        return replace(first, x * 2), second

    swapping: list[bool] = []
    one.register_shape_inference(lambda x: x)
    two.register_shape_inference(lambda x: (x, x))
    x = X[:size]
    body, outputs = "y = out.One(x) z, w = out.Two(x) u = out.Two(x)", "float[a] y, float[b] z, float[c] w, float[d] u"
    text = f'<ir_version: 8, opset_import: ["" : 17, "out" : 1]> g (float[n] x) => ({outputs}) {{ {body} }}'
    session = pyops.InferenceSession(onnx.parser.parse_model(text))
    for swaps in ([], [], [True]):
        swapping += swaps
        got = session.run(None, {"x": x})
        assert [y.tolist() for y in got] == [(x + 1).tolist(), (x * 2).tolist(), (x * 3).tolist(), (x * 2).tolist()]


def test_a_kept_buffer_is_reported_and_becomes_read_only() -> None:
    kept = []

    @onnx_op("out::Keep")
    def keep(x: F32, *, out: F32 | None = None) -> F32:
        kept.append(out)
        return np.add(x, 1, out=out)

    keep.register_shape_inference(lambda x: x)
    session = session_for("y = out.Keep(x)")
    with pytest.warns(BorrowedArrayWarning, match="out::Keep"):
        (y,) = session.run(None, {"x": X})
    with pytest.raises(ValueError, match="read-only"):
        kept[0][...] = 0
    assert y.tolist() == (X + 1).tolist()


def test_an_op_that_may_work_in_place_gets_the_memory_of_its_input() -> None:
    shared = []

    @onnx_op("out::Grow", may_inplace={"output": "x"})
    def grow(x: F32, *, out: F32 | None = None) -> F32:
        shared.append(out is not None and np.shares_memory(x, out))
        return np.add(x, 1, out=out)

    grow.register_shape_inference(lambda x: x)
    session = session_for("a = Neg(x)  b = out.Grow(a)  y = Neg(b)")
    assert session.run(None, {"x": X})[0].tolist() == (X - 1).tolist()
    assert shared == [True]


def test_outputs_in_each_other_s_memory_are_copied_before_it_is_written_to() -> None:
    @onnx_op("out::Swap")
    def swap(x: F32, *, out: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
        less, more = out or (np.empty_like(x), np.empty_like(x))
        np.subtract(x, 1, out=less)
        np.add(x, 1, out=more)
        return more[::-1], less

    swap.register_shape_inference(lambda x: (x, x))
    session = session_for("a, b = out.Swap(x)  y = Sub(a, b)")
    assert session.run(None, {"x": X})[0].tolist() == ((X + 1)[::-1] - (X - 1)).tolist()


def test_an_output_in_an_input_s_memory_does_not_change_another_output() -> None:
    @onnx_op("out::Both", may_inplace={"output_0": "x"})
    def both(x: F32) -> tuple[F32, F32]:
        return x + np.float32(1), x

    both.register_shape_inference(lambda x: (x, x))
    session = session_for("n = Neg(x)  a, b = out.Both(n)  y = Sub(a, b)")
    assert session.run(None, {"x": X})[0].tolist() == np.ones_like(X).tolist()


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_another_kernel_takes_it_too(device_type: Literal["cpu", "cuda"]) -> None:
    @onnx_op("out::Second")
    def second(x: F32, *, out: F32 | None = None) -> F32:
        return np.add(x, 1, out=out)

    with pytest.raises(DeclarationError, match=r"unexpected keyword argument 'out'\); give it .*, and out=None$"):
        second.register_kernel(device_type)(lambda x: x + 2)
    second.register_kernel(device_type)(lambda x, *, out=None: np.add(x, 2, out=out))


def kernel(x: F32, y: NDArray[np.float64]) -> F32:
    return x


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([("output", "x")], 'out::Bad: may_inplace is .*; write output and input: {"output": "x"}'),
        ({"output": ["x"]}, r"the input \['x'\]; the inputs are: x, y"),
        ({"z": "x"}, "the output 'z'; the outputs are: output"),
        ({"output": "z"}, "the input 'z'; the inputs are: x, y"),
        ({"output": "y"}, "output 'output' is float32 and input 'y' is float64"),
    ],
)
def test_what_cannot_share_memory_is_a_declaration_error(names: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        onnx_op("out::Bad", may_inplace=names)(kernel)
