"""`pyops.kernels` against torch: every sample of torch's own database, through the nodes that an export emits."""

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

from exporters._library.translation_order import complex_rows, rows
from pyops._core.ops.op import Op
from tests.exporters._library import decompositions
from tests.exporters._library.kernel_calls import Call, arrays, calls, infos, run
from tests.helpers.tiers import exhaustive

# Rows whose operators torch has no samples of under their names: samples that come down to them.
SAMPLED_BY: dict[str, tuple[str, ...]] = {
    "aten::_histogramdd_bin_edges": ("histogramdd",),
    "aten::_histogramdd_from_bin_cts": ("histogramdd",),
    "aten::_histogramdd_from_bin_tensors": ("histogramdd",),
    "torch_nn::_linear_cross_entropy_batch_chunked": ("nn.functional.linear_cross_entropy.chunked",),
    "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction": ("nn.functional.linear_cross_entropy.chunked_none",),
    "aten::_fft_c2c": ("fft.fft", "fft.ifft"),
    "aten::_fft_r2c": ("fft.rfft", "fft.ihfft"),
    "aten::_fft_c2r": ("fft.irfft", "fft.hfft"),
    "aten::replication_pad2d": ("nn.functional.pad.replicate_negative",),
    "aten::repeat_interleave.Tensor": (),
}


# Rows that no sample reaches, and why.
UNREACHED: dict[str, str] = (
    {
        "aten::_grouped_mm": "it has no samples: test_complex_numbers.py",
        "aten::_is_all_true": "it has no samples: test_complex_numbers.py",
        "aten::_is_any_true": "it has no samples: test_complex_numbers.py",
        "aten::bincount": "its samples are of integers",
        "aten::bucketize.Scalar": "all samples are of tensors",
        "aten::one_hot": "its samples are of integers",
        "aten::adaptive_avg_pool1d": "its samples come down to _adaptive_avg_pool2d: test_library_rows.py",
        "aten::split.Tensor": "it takes sizes alone that depend on another: test_capture.py",
        "aten::resize": "it comes from Tensor.resize_ in an export alone",
        "aten::_lu_with_info": "samples of torch.lu come down to linalg_lu_factor_ex",
        "aten::linalg_tensorinv": "its samples come down to linalg_inv_ex",
        "aten::repeat_interleave.Tensor": "onnx does not evaluate torch's nodes: test_wrong_translations.py",
        "aten::rand": "it takes float16 alone: test_library_rows.py",
        "aten::randn": "it takes float16 alone: test_library_rows.py",
    }
    | {
        f"aten::{name}": "it has no samples: test_packed_sequences.py"
        for name in (
            "_pack_padded_sequence",
            "_pad_packed_sequence",
            "gru.data",
            "lstm.data",
            "rnn_relu.data",
            "rnn_tanh.data",
        )
    }
    | {
        name: "called in test_elementwise_kernels.py"
        for name in rows
        if name.endswith((".x_scalar", ".n_scalar", ".self_scalar", ".other_scalar"))
        or name in ("aten::gcd", "aten::lcm", "aten::rrelu_with_noise_functional")
    }
    | dict.fromkeys(
        (
            *("aten::cdist", "aten::_euclidean_dist", "aten::pdist", "aten::pad"),
            *("aten::replication_pad1d", "aten::replication_pad3d"),
            *("aten::cross_entropy_loss", "aten::ctc_loss.Tensor", "aten::ctc_loss.IntList"),
            "aten::scaled_dot_product_attention",
            "prims::view_of",
        ),
        "called in test_composite_kernels.py",
    )
    | dict.fromkeys(
        (
            *(f"aten::{name}{kind}" for name in ("__lshift__", "__rshift__") for kind in (".Scalar", ".Tensor")),
            *(
                f"aten::bitwise_{way}_shift.{kind}"
                for way in ("left", "right")
                for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
            ),
            *("aten::zeros", "aten::ones", "aten::full", "aten::empty.memory_format"),
            *("aten::slice_scatter", "aten::select_scatter"),
            *("aten::embedding_bag", "aten::embedding_bag.padding_idx"),
            *("aten::scalar_tensor", "aten::flip", "prims::convert_element_type"),
            *("aten::remainder.Scalar", "aten::remainder.Scalar_Tensor", "aten::floor_divide.Scalar"),
            *("aten::div.Scalar_mode", "aten::mul.Scalar", "aten::pow.Tensor_Scalar", "aten::pow.Scalar"),
            *("aten::pow.Tensor_Tensor", "aten::clamp", "aten::clamp_min", "aten::clamp_max", "aten::_unique2"),
            *("aten::repeat_interleave.self_int", "aten::sum", "aten::sum.dim_IntList"),
            *("aten::argmax", "aten::argmin", "aten::cross", "aten::einsum", "aten::expand", "aten::lstm.input"),
            *("aten::add.Tensor", "aten::mul.Tensor", "aten::div.Tensor", "prims::var"),
            *(f"aten::{name}.{kind}" for name in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")),
        ),
        "it takes calls alone that are not of floats, or that torch's samples lack: test_wrong_translations.py",
    )
    | dict.fromkeys(
        (
            *("aten::index_put", "aten::_unsafe_index_put", "aten::copy", "aten::_to_copy", "aten::native_dropout"),
            *("aten::convolution", "aten::mean", "aten::mean.dim", "aten::sym_numel", "prims::div"),
        ),
        "it takes calls alone that torch's samples do not come down to: test_library_rows.py",
    )
)

# Rows that torch's own translations of other types are right for.
OF_DOUBLES = {
    *("aten::erf", "aten::log2", "aten::log10", "aten::arange.start_step"),
    *("aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r", "aten::isinf"),
    *(f"aten::{name}" for name in ("tan", "atan", "acos", "asin", "sinh", "cosh", "asinh", "atanh")),
}

# What is compared where a result is free in a sign, a phase or an order, or is rounded in proportion to another.
COMPARED: dict[str, Callable[[Call, list[np.ndarray]], list[np.ndarray]]] = {
    "aten::_linalg_svd": decompositions.singular_values,
    "aten::_linalg_eigh": decompositions.symmetric_eigenvalues,
    "aten::linalg_eig": decompositions.eigenvalues,
    "aten::linalg_eigvals": decompositions.eigenvalues,
    "aten::linalg_matrix_exp": decompositions.scaled,
}

TOLERANCES = {np.dtype(np.float32): (1e-3, 1e-4), np.dtype(np.float64): (1e-6, 1e-7)}

# Rows whose results in float64 torch computes to only six digits (cov with float32 weights: four).
INEXACT = {"aten::cov", "aten::special_bessel_j0", "aten::special_bessel_y1"}


def plain(name: str) -> str:
    """A torch operator's name without what tells its variants apart."""
    name = name.partition("::")[2].partition(".")[0] if "::" in name else name
    return re.sub(r"^_*(linalg_|special_|nn_functional_)?|(_ex|_forward|_impl)$", "", name)


def samples(row: str) -> tuple[str, ...]:
    """The operators in torch's database whose samples try a row."""
    names = [name for name, info in infos().items() if plain((info.aten_name or name).replace(".", "_")) == plain(row)]
    return SAMPLED_BY.get(row, tuple(names))


@pytest.fixture(autouse=True)
def _exporting(monkeypatch):
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of deprecated operators
@pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning")  # NumPy's, where torch warns as well
@pytest.mark.parametrize(
    ("dtype", "most"),
    [
        pytest.param(torch.float32, 1, id="float32"),
        exhaustive(torch.float64, 2, id="float64"),
        pytest.param(torch.float32, None, id="float32-all", marks=pytest.mark.stress),
        pytest.param(torch.float64, None, id="float64-all", marks=pytest.mark.stress),
    ],
)
@pytest.mark.parametrize("row", rows)
def test_it_computes_what_torch_does(row, dtype, most):
    ops = samples(row)
    dtypes = [(op, each) for each in (dtype, dtype.to_complex()) for op in ops if tried_in(row, op, each)]
    found = (call for op, each in dtypes for call in calls(op, each) if call.name == row)
    tried = sum(itertools.islice(filter(None, map(compare, found)), most))
    is_unreached = row in UNREACHED or (row in OF_DOUBLES and dtype is torch.float32)
    assert bool(tried) != is_unreached, f"{tried} calls in samples of {ops}: add it to UNREACHED or take it out"


def tried_in(row: str, op: str, dtype: torch.dtype) -> bool:
    """Whether samples of this dtype try the row: complex ones do where it takes them, or where there are no others."""
    supported = infos()[op].supported_dtypes("cpu")
    others = dtype.is_complex and not takes_complex(row) and dtype.to_real() in supported
    return dtype in supported and not others


def takes_complex(row: str) -> bool:
    """Whether the function of a row, or the counterpart of its op for complex numbers, serves complex tensors too."""
    if row not in complex_rows:
        return False
    real, found = rows[row].registration.source, complex_rows[row].registration.source
    return found is real or (isinstance(found, Op) and found.name == f"Complex{getattr(real, 'name', '')}")


def compare(call: Call) -> bool:
    actual = run(call)
    if actual is None:
        return False
    expected = arrays(call.expected)
    for one, other in zip(actual, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), call
    invariant = COMPARED.get(call.name, lambda _, results: results)
    rtol, atol = max(TOLERANCES.get(item.dtype, (0, 0)) for item in expected)
    rtol, atol = max((rtol, atol), TOLERANCES[np.dtype(np.float32)]) if call.name in INEXACT else (rtol, atol)
    try:
        for one, other in zip(invariant(call, actual), invariant(call, expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
    except AssertionError as error:
        error.add_note(str(call))  # which takes longer than the test
        raise
    return True


def test_every_row_is_of_an_operator_that_torch_has():
    assert set(SAMPLED_BY) | set(UNREACHED) | set(COMPARED) | INEXACT <= set(rows)
