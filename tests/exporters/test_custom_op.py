"""An Op as a torch operator: how it computes and traces."""

from typing import Literal, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import exporters
from pyops import onnx_op, shapes
from pyops.errors import InputError, RedeclarationWarning, ShapeInferenceError
from tests.exporters.declared import declare
from tests.helpers.scripts import run_script

T = TypeVar("T", np.float16, np.float32, np.float64, ml_dtypes.bfloat16)


def add_round(x: NDArray[T], *, decimals: int = 0) -> NDArray[T]:
    return np.round(x + x, decimals)


@pytest.fixture
def torch_add_round():
    return exporters.custom_op(declare(add_round, "customop::AddRound"), "customop::add_round")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_computes_what_the_op_computes(torch_add_round, dtype):
    x = torch.tensor([[0.123, -1.456]], dtype=dtype)
    assert torch.equal(torch_add_round(x, decimals=1), torch.round(x + x, decimals=1))
    assert torch_add_round(x).dtype is dtype
    assert torch.equal(torch.ops.customop.add_round(x), torch.round(x + x))


def test_passes_opcheck(torch_add_round):
    x = torch.randn(3, 4)
    torch.library.opcheck(torch_add_round, (x,), {"decimals": 1})
    torch.library.opcheck(torch_add_round, (x.mT,))
    torch.library.opcheck(torch_add_round, (torch.randn(()),))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_dtypes_that_numpy_lacks(dtype):
    F8 = TypeVar("F8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)

    def negate(x: NDArray[F8]) -> NDArray[F8]:
        assert x.dtype.type.__module__ == "ml_dtypes"
        return -x

    torch_negate = exporters.custom_op(declare(negate, "customop::Negate"), "customop::negate")
    x = torch.tensor([[1.5, -2.0, 0.25], [0.0, 8.0, 1.0]]).to(dtype)
    for tensor in (x, x.mT, x[0, 0]):
        result = torch_negate(tensor)
        assert result.dtype is dtype
        assert torch.equal(result.float(), -tensor.float())


def test_every_other_dtype():
    seen: list[object] = []

    def twice(x: NDArray[np.generic]) -> NDArray[np.bool_]:
        seen.append(x.dtype)
        return x == x

    torch_twice = exporters.custom_op(
        declare(twice, "customop::Twice", lambda x: x.like(dtype=bool)), "customop::twice"
    )
    dtypes = [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "complex64",
        "complex128",
    ]
    for name in dtypes:
        assert torch_twice(torch.ones(2).to(getattr(torch, name))).tolist() == [True, True]
    assert seen == [np.dtype(name) for name in dtypes]


def test_inputs_are_views_and_outputs_are_not():
    addresses: list[int] = []

    def identity(x: NDArray[np.float32]) -> NDArray[np.float32]:
        addresses.append(x.ctypes.data)
        return x

    torch_identity = exporters.custom_op(declare(identity, "customop::Identity"), "customop::identity")
    x = torch.randn(5)
    y = torch_identity(x)
    assert addresses == [x.data_ptr()]
    assert torch.equal(x, y)
    y += 1
    assert not torch.equal(x, y)


def test_a_kernels_own_array_is_not_handed_out():
    constant = np.zeros(2, np.float32)

    def table(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return constant

    torch_table = exporters.custom_op(declare(table, "customop::Table"), "customop::table")
    torch_table(torch.ones(2)).add_(7)
    assert torch_table(torch.ones(2)).tolist() == [0, 0]


def test_inputs_that_are_no_plain_memory(torch_add_round):
    x = torch.randn(3, 4, requires_grad=True)
    torch.testing.assert_close(torch_add_round(x, decimals=2).detach(), torch.round(x.detach() * 2, decimals=2))

    def conjugate(x: NDArray[np.complex64]) -> NDArray[np.complex64]:
        return x.conj()

    torch_conjugate = exporters.custom_op(declare(conjugate, "customop::Conj"), "customop::conj")
    z = torch.tensor([1 + 2j])
    assert torch_conjugate(z.conj()).tolist() == [1 + 2j]
    assert torch_add_round(torch._neg_view(torch.tensor([1.0]))).tolist() == [-2.0]


def test_a_backward_formula_can_be_registered(torch_add_round):
    torch_add_round.register_autograd(lambda ctx, grad: grad * 2)
    x = torch.ones(3, requires_grad=True)
    torch_add_round(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


class MeanAndDeviation(NamedTuple):
    mean: NDArray[np.float32]
    deviation: NDArray[np.float64]


def test_several_outputs():
    def moments(x: NDArray[np.float32]) -> MeanAndDeviation:
        return MeanAndDeviation(x.mean(0), x.std(0).astype(np.float64))

    op = declare(
        moments,
        "customop::Moments",
        lambda x: (x.like(shape=x.shape[1:]), x.like(shape=x.shape[1:], dtype=np.float64)),
    )
    torch_moments = exporters.custom_op(op, "customop::moments")
    x = torch.randn(5, 3)
    mean, deviation = torch_moments(x)
    torch.testing.assert_close(mean, x.mean(0))
    torch.testing.assert_close(deviation, x.std(0, correction=0).double(), rtol=1e-5, atol=1e-6)
    torch.library.opcheck(torch_moments, (x,))


def test_optional_input():
    def shift(x: NDArray[np.float32], by: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        return x.copy() if by is None else x + by

    torch_shift = exporters.custom_op(declare(shift, "customop::Shift", lambda x, by=None: x), "customop::shift")
    x = torch.randn(3)
    for result in (torch_shift(x), torch_shift(x, None), torch_shift(x, by=None)):
        assert torch.equal(result, x)
    assert torch.equal(torch_shift(x, by=x), x + x)
    torch.library.opcheck(torch_shift, (x,))
    torch.library.opcheck(torch_shift, (x, x))


def test_variadic_input_and_output():
    def pile(*xs: NDArray[T]) -> NDArray[T]:
        return np.stack(xs)

    def split(x: NDArray[T]) -> tuple[NDArray[T], ...]:
        return tuple(x)

    torch_pile = exporters.custom_op(
        declare(pile, "customop::Pile", lambda *xs: xs[0].like(shape=(len(xs), *xs[0].shape))), "customop::pile"
    )
    torch_split = exporters.custom_op(
        declare(split, "customop::Split", lambda x: tuple(x.like(shape=x.shape[1:]) for _ in range(x.shape[0]))),
        "customop::split",
    )
    xs = [torch.randn(2) for _ in range(3)]
    assert torch.equal(torch_pile(xs), torch.stack(xs))
    assert all(map(torch.equal, torch_split(torch_pile(xs)), xs))
    torch.library.opcheck(torch_pile, (xs,))
    torch.library.opcheck(torch_split, (torch_pile(xs),))


def test_other_outputs_before_a_variadic_one_are_in_its_list():
    def counted(x: NDArray[T]) -> tuple[NDArray[np.int64], *tuple[NDArray[T], ...]]:
        return np.array([len(x)]), *x

    def shape(x):
        return x.like(shape=(1,), dtype=np.int64), *[x.like(shape=x.shape[1:])] * x.shape[0]

    torch_counted = exporters.custom_op(declare(counted, "customop::Counted", shape), "customop::counted")
    x = torch.randn(3, 2)
    count, *rows = torch_counted(x)
    assert count.tolist() == [3]
    assert all(map(torch.equal, rows, x))
    torch.library.opcheck(torch_counted, (x,))

    class Model(torch.nn.Module):
        def forward(self, x):
            count, first, *_, last = torch_counted(x)
            return count, first + last

    model = Model().eval()
    report = exporters.verify(model, (x,), exporters.export(model, (x,)))
    assert report.ok, report


def test_a_variadic_output_of_one_tensor_is_a_list():
    def rows(x: NDArray[T]) -> tuple[NDArray[T], ...]:
        return tuple(x)

    torch_rows = exporters.custom_op(
        declare(rows, "customop::Rows", lambda x: (x.like(shape=x.shape[1:]),) * x.shape[0]), "customop::rows"
    )

    class Model(torch.nn.Module):
        def forward(self, x):
            (row,) = torch_rows(x)
            return -row

    model, x = Model().eval(), torch.randn(1, 2)
    report = exporters.verify(model, (x,), exporters.export(model, (x,)))
    assert report.ok, report


def test_no_input():
    def five(*, size: int) -> NDArray[np.float32]:
        return np.full(size, 5, np.float32)

    torch_five = exporters.custom_op(
        declare(five, "customop::Five", lambda *, size: shapes.TensorSpec((size,), np.dtype(np.float32))),
        "customop::five",
    )
    assert torch_five(size=2).tolist() == [5, 5]


def test_every_attribute_kind():
    seen: list[dict[str, object]] = []

    def attributes(
        x: NDArray[np.float32],
        *,
        i: int,
        f: float = 0.1,
        s: str = 'quoted "text"\n',
        b: bool = True,
        ints: list[int] = [1, -2],  # noqa: B006
        floats: tuple[float, ...] = (0.5,),
        strings: list[str] = ["a", "b"],  # noqa: B006
        maybe: int | None = None,
        maybe_list: list[float] | None = None,
        infinite: float = float("inf"),
        mode: Literal["linear", "cubic"] = "linear",
        table: np.ndarray = np.arange(3),  # noqa: B008
    ) -> NDArray[np.float32]:
        seen.append({key: value for key, value in locals().items() if key not in ("x", "table", "seen")})
        return x.copy()

    op = declare(attributes, "customop::Attributes")
    torch_attributes = exporters.custom_op(op, "customop::attributes")
    x = torch.zeros(1)
    given = {
        "i": 5,
        "f": 0.3,
        "s": "ä",
        "b": False,
        "ints": [],
        "floats": [0.1, 2],
        "strings": ["c"],
        "maybe": 7,
        "maybe_list": [1.5],
        "infinite": float("-inf"),
        "mode": "cubic",
    }
    torch_attributes(x, i=5)
    torch_attributes(x, **given)
    op(x.numpy(), i=5)
    op(x.numpy(), **given)
    assert seen[:2] == seen[2:]
    assert [type(value) for value in seen[1].values()] == [type(value) for value in seen[3].values()]
    torch.library.opcheck(torch_attributes, (x,), {"i": 5})


def test_attributes_may_be_called_like_what_an_export_works_with():
    def named(
        x: NDArray[np.float32],
        *,
        node: int = 1,
        answers: int = 1,
        target: int = 1,
        row: int = 1,
        op: int = 1,
        g: int = 1,
        args: int = 1,
        kwargs: int = 1,
    ) -> NDArray[np.float32]:
        return x + np.float32(node + answers + target + row + op + g + args + kwargs)

    op = declare(named, "customop::Names", lambda x, **names: x)
    torch_named = exporters.custom_op(op, "customop::names")
    given = {attribute.name: 2 for attribute in op.signature.attributes}
    x = torch.ones(1)
    assert torch_named(x, **given).tolist() == [17]
    model = Calls(lambda x: torch_named(x, **given)).eval()
    assert exporters.verify(model, (x,), exporters.export(model, (x,))).ok


def test_runtime_output_shape():
    def unique(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        values, counts = np.unique(x, return_counts=True)
        return values, counts

    def shape(x):
        count = shapes.new_dim()
        return x.like(shape=(count,)), x.like(shape=(count,), dtype=np.int64)

    torch_unique = exporters.custom_op(declare(unique, "customop::Unique", shape), "customop::unique")
    values, counts = torch_unique(torch.tensor([1.0, 2.0, 1.0]))
    assert (values.tolist(), counts.tolist()) == ([1, 2], [2, 1])

    class Model(torch.nn.Module):
        def forward(self, x):
            values, counts = torch_unique(x)
            return values * counts  # one run-time dimension is one size

    program = torch.export.export(Model(), (torch.tensor([1.0, 2.0, 1.0]),))
    assert program.module()(torch.tensor([3.0, 3.0, 3.0])).tolist() == [9.0]


def test_a_replaced_kernel_takes_effect(torch_add_round):
    x = torch.ones(2)
    assert torch_add_round(x).tolist() == [2, 2]

    def changed(x: NDArray[T], *, decimals: int = 0) -> NDArray[T]:
        return x * 0

    with pytest.warns(RedeclarationWarning, match=r"changed .*previously add_round "):
        onnx_op("customop::AddRound")(changed)
    assert torch_add_round(x).tolist() == [0, 0]
    with pytest.raises(ShapeInferenceError, match=r"no shape function; register one"):
        torch.export.export(Calls(torch_add_round), (x,))


class Calls(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def test_registering_again_replaces(torch_add_round):
    def scaled(x: NDArray[np.float32], y: NDArray[np.float32], *, by: float) -> NDArray[np.float32]:
        return (x + y) * np.float32(by)

    x = torch.ones(2)
    torch.library.opcheck(torch_add_round, (x,))
    with pytest.warns(RedeclarationWarning, match=r"scaled .*previously add_round "):
        again = exporters.custom_op(declare(scaled, "customop::AddRound"), "customop::add_round")
    assert again(x, x, by=3).tolist() == [6, 6]
    assert torch.ops.customop.add_round(x, x, by=3).tolist() == [6, 6]
    torch.library.opcheck(again, (x, x), {"by": 3})
    with pytest.warns(RedeclarationWarning, match=r"add_round .*previously .*scaled "):
        first = exporters.custom_op(declare(add_round, "customop::AddRound"), "customop::add_round")
    assert first(x).tolist() == [2, 2]
    assert torch_add_round(x).tolist() == [2, 2]


def test_a_call_of_an_op_whose_signature_has_changed_says_to_register_it_again():
    def grown(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x + x

    before = exporters.custom_op(declare(grown, "customop::Grown"), "customop::grown")
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="expected at most 1 argument"):
        before(x, x)

    def grown(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
        return x + y

    op = declare(grown, "customop::Grown")
    for call in (before, torch.ops.customop.grown, torch.ops.customop.grown.default):
        with pytest.raises(InputError) as raised:
            call(x, x)
        assert str(raised.value) == (
            "customop::grown is registered for customop::Grown(x: float32) -> float32, which has been declared again "
            "as customop::Grown(x: float32, y: float32) -> float32; call exporters.custom_op(op, "
            '"customop::grown") again'
        )
    assert before(x).tolist() == [2, 2]
    exporters.custom_op(op, "customop::grown")
    for call in (before, torch.ops.customop.grown, torch.ops.customop.grown.default):
        assert call(x, x).tolist() == [2, 2]
        with pytest.raises(RuntimeError, match="missing value for argument 'y'"):
            call(x)


def test_inputs_by_name(torch_add_round):
    assert torch_add_round(x=torch.ones(1)).tolist() == [2]


def test_under_autocast_an_operator_gets_the_smaller_type_or_the_one_that_is_registered():
    seen = []

    def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
        seen.append(x.dtype)
        return x + x

    torch_twice = exporters.custom_op(declare(twice, "custom::Autocast"), "custom::autocast")
    linear, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(InputError, match=r"'x' is bfloat16; .*register_autocast\(\"cpu\", torch.float32\)"):
            torch_twice(linear(x))
        torch_twice.register_autocast("cpu", torch.float32)
        assert torch_twice(linear(x)).dtype == torch.float32
    assert seen == [np.float32]
    with pytest.raises(InputError, match=r"declared as float32: convert it, in NumPy with x\.astype\(np\.float32\)$"):
        torch_twice(x.half())


def test_torch_compile_with_an_int_that_changes(torch_add_round):
    compiled = torch.compile(lambda x, decimals: torch_add_round(x, decimals=decimals) + 1, backend="eager")
    x = torch.tensor([0.1234])
    assert [round(compiled(x, n).item(), 4) for n in (1, 2, 3)] == [1.2, 1.25, 1.247]


def test_torch_compile_with_a_flag():
    def shift(x: NDArray[np.float32], *, up: bool, down: bool = False) -> NDArray[np.float32]:
        assert type(up) is type(down) is bool
        return x + np.float32(up) - np.float32(down)

    torch_shift = exporters.custom_op(declare(shift, "customop::Shifted"), "customop::shifted")
    x = torch.zeros(4)
    assert torch_shift(x, up=True).tolist() == [1] * 4
    torch.library.opcheck(torch_shift, (x,), {"up": True, "down": True})
    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(
            lambda x, up: torch_shift(x, up=up, down=x.shape[0] > 4), backend=backend, dynamic=True
        )
        assert [compiled(x, True)[0].item(), compiled(x, False)[0].item()] == [1, 0]
        assert compiled(torch.zeros(5), True)[0].item() == 0


@pytest.mark.exhaustive
def test_registering_again_and_again_does_not_crash():
    script = """
        import gc

        held = []
        for factor in range(45):
            @onnx_op("customop::Again")
            def again(x: NDArray[np.float32], *, n: int = factor) -> NDArray[np.float32]:
                return x * np.float32(factor)
            again.register_shape_inference(lambda x, *, n=0: x)
            registered = exporters.custom_op(again, "customop::again")
            held += [registered, torch.ops.customop.again, torch.ops.customop.again.default]
            if factor % 20 == 0:
                gc.collect()
            assert {op(torch.ones(1)).item() for op in held[-30:]} == {factor}
    """
    run_script(("import torch, exporters", script), "")
