"""An Op as a torch operator: the registrations and calls that raise errors."""

import sys
from typing import Literal, TypeVar

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import exporters
from exporters import _operator_calls
from pyops import onnx_op
from pyops.errors import InputError, MissingDependencyError, OutputError, ShapeInferenceError
from tests.exporters.declared import declare

T = TypeVar("T", np.float32, np.float64)


def add_round(x: NDArray[T], *, decimals: int = 0) -> NDArray[T]:
    return np.round(x + x, decimals)


@pytest.fixture
def torch_add_round():
    return exporters.custom_op(declare(add_round, "refused::AddRound"), "refused::add_round")


def test_errors_are_those_of_the_plain_call(torch_add_round):
    with pytest.raises(InputError, match=r"input 'x' is int64; declared as T"):
        torch_add_round(torch.ones(2, dtype=torch.int64))

    def wrong(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x.astype(np.float64)

    torch_wrong = exporters.custom_op(declare(wrong, "refused::Wrong"), "refused::wrong")
    with pytest.raises(OutputError, match=r"return result.astype\(np.float32\)"):
        torch_wrong(torch.ones(2))

    def broken(x: NDArray[np.float32]) -> NDArray[np.float32]:
        raise LookupError("as itself")

    torch_broken = exporters.custom_op(declare(broken, "refused::Broken"), "refused::broken")
    with pytest.raises(LookupError, match="as itself"):
        torch_broken(torch.ones(2))


def test_a_literal_is_checked():
    def resize(x: NDArray[np.float32], *, mode: Literal["linear", "cubic"] = "linear") -> NDArray[np.float32]:
        return x.copy()

    torch_resize = exporters.custom_op(declare(resize, "refused::Resize"), "refused::resize")
    with pytest.raises(InputError, match=r"attribute 'mode' is 'none'; expected one of 'linear', 'cubic'"):
        torch_resize(torch.ones(1), mode="none")


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")  # torch's, for making the tensor
def test_a_dtype_onnx_lacks(torch_add_round):
    with pytest.raises(InputError, match=r"cannot take a tensor of torch.complex32; convert it to one of"):
        torch_add_round(torch.zeros(2, dtype=torch.complex32))


def test_a_shape_function_is_needed():
    @onnx_op("refused::Shapeless")
    def shapeless(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    message = r"refused::Shapeless has no shape function.*@shapeless.register_shape_inference before"
    with pytest.raises(exporters.ExportError, match=message):
        exporters.custom_op(shapeless, "refused::shapeless")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my.library::op", r"'my.library::op' is not a name .* write \"ns::name\" of letters, digits and _"),
        ("library::op.default", "is not a name that torch can register"),
        ("op", r"'op' is not a name that torch can register; write \"ns::name\""),
        ("a::b::c", "is not a name that torch can register"),
        (None, "None is not a name that torch can register"),
        ("größe::op", "'größe::op' is not a name that torch can register"),
        ("prim::op", r"torch rejects 'prim::op'.*choose another name"),
        ("aten::gelu", r"torch rejects 'aten::gelu'.*choose another name"),
    ],
)
def test_names_that_torch_cannot_take(name, message):
    op = declare(add_round, "refused::AddRound")
    with pytest.raises(exporters.ExportError, match=message):
        exporters.custom_op(op, name)


def test_a_refused_name_leaves_torch_usable(torch_add_round):
    with pytest.raises(exporters.ExportError):
        exporters.custom_op(declare(add_round, "refused::AddRound"), "aten::gelu")
    assert torch.nn.functional.gelu(torch.zeros(1)).tolist() == [0]


def test_the_torch_operator_of_another_op_is_not_replaced(torch_add_round):
    def less(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x - 1

    other = declare(less, "refused::Less")
    for _ in range(2):
        with pytest.raises(exporters.ExportError) as raised:
            exporters.custom_op(other, "refused::add_round")
    assert str(raised.value) == (
        "'refused::add_round' is already the torch operator of refused::AddRound; with refused::Less under that name, "
        "its calls would compute something else: choose another name"
    )
    assert torch_add_round(torch.ones(2)).tolist() == [2, 2]
    newer = onnx_op("refused::AddRound", version=2)(add_round)
    newer.register_shape_inference(lambda x, *, decimals=0: x)
    for op in (declare(add_round, "refused::AddRound"), newer):
        assert exporters.custom_op(op, "refused::add_round")(torch.ones(2)).tolist() == [2, 2]


def größe(x: NDArray[np.float32], *, größe: int = 1) -> NDArray[np.float32]: ...
def input_größe(größe: NDArray[np.float32]) -> NDArray[np.float32]: ...
def ellipsis(x: NDArray[np.float32], *, Ellipsis: int = 1) -> NDArray[np.float32]: ...
def none_type(NoneType: NDArray[np.float32]) -> NDArray[np.float32]: ...
def itself(x: NDArray[np.float32], *, self: int = 1) -> NDArray[np.float32]: ...


@pytest.mark.parametrize(
    ("function", "name"),
    [(größe, "größe"), (input_größe, "größe"), (ellipsis, "Ellipsis"), (none_type, "NoneType"), (itself, "self")],
)
def test_a_parameter_that_torch_cannot_name_is_named(function, name):
    message = rf"refused::Named: torch's operators cannot have a parameter named '{name}'; rename it in the declaration"
    with pytest.raises(exporters.ExportError, match=message):
        exporters.custom_op(declare(function, "refused::Named", function), "refused::named")


def test_an_input_may_be_called_self():
    def negative(self: NDArray[np.float32]) -> NDArray[np.float32]:
        return -self

    torch_negative = exporters.custom_op(declare(negative, "refused::Negative"), "refused::negative")
    assert torch_negative(torch.ones(1)).tolist() == [-1]


def test_what_torch_has_no_type_for():
    def tensor_attribute(x: NDArray[np.float32], *, table: np.ndarray) -> NDArray[np.float32]:
        return x

    with pytest.raises(exporters.ExportError, match=r"attribute 'table' is a tensor.*make it an input"):
        exporters.custom_op(declare(tensor_attribute, "refused::TensorAttribute"), "refused::tensor_attribute")

    def upper(x: NDArray[np.str_]) -> NDArray[np.str_]:
        return np.char.upper(x.astype(str))

    with pytest.raises(exporters.ExportError, match="input 'x' is string, and torch has no such tensors"):
        exporters.custom_op(declare(upper, "refused::Upper"), "refused::upper")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_result_that_torch_has_no_type_for(device):
    def narrow(x: NDArray[np.float32]) -> tuple[NDArray[np.generic], ...]:
        return (x.astype(ml_dtypes.int4),)

    op = declare(narrow, "refused::Narrow", lambda x: (x.like(dtype=ml_dtypes.int4),))
    torch_narrow = exporters.custom_op(op, "refused::narrow")
    with pytest.raises(OutputError, match="torch has no tensors of int4; let the operator return another type"):
        torch_narrow(torch.ones(2, device=device))


def test_tensors_on_two_devices():
    def add(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
        return x + y

    torch_add = exporters.custom_op(declare(add, "refused::Add"), "refused::add")
    with pytest.raises(InputError, match=r"refused::Add got tensors on cpu, meta; move them to one device with .to\("):
        torch_add(torch.ones(2), torch.ones(2, device="meta"))


def test_only_an_op_can_be_registered():
    with pytest.raises(exporters.ExportError, match=r"pass an operator declared with @pyops.onnx_op"):
        exporters.custom_op(add_round, "refused::add_round")


def test_a_wrong_shape_function(model):
    def identity(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x

    torch_identity = exporters.custom_op(
        declare(identity, "refused::HalfDim", lambda x: x.like(shape=(2.5,))), "refused::half_dim"
    )
    with pytest.raises(ShapeInferenceError, match=r"a dimension is 2.5"):
        torch.export.export(model(lambda x: torch_identity(x)), (torch.ones(5),))


def test_cuda_without_cupy(monkeypatch):
    op = declare(add_round, "refused::AddRound")
    op.register_kernel("cuda")(add_round)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        MissingDependencyError, match=r'needs CuPy and onnxruntime-gpu; pip install "onnx-pyops\[cuda\]'
    ):
        _operator_calls.call_cuda_kernel(op, [torch.ones(2)], {}, torch.device("cuda"))
