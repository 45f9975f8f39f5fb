"""A model file cannot run arbitrary code: which torch operators it may name, and which arguments it may pass."""

import json
import re
import signal

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import exporters
import pyops
from exporters._fallback import allowed_operators, call_encoding
from exporters._torch.private.operators import describe, operator_names, schema_arguments, schema_returns
from exporters._torch.tensors import sharing_tensor
from pyops.errors import InputError, ModelError
from tests.helpers.scripts import run_plain_script

GOOD = '{"A": {"tensor": 0}}'


@pytest.fixture(autouse=True)
def _asked_for():
    exporters.register_fallback()


def make_model(name: str, arguments: str = GOOD, overload: str = "default") -> onnx.ModelProto:
    node = onnx.helper.make_node(name, ["x"], ["y"], domain="aten", overload_name=overload, arguments=arguments)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 2])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    imports = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("aten", 1)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


def overload(name: str) -> torch._ops.OpOverload:
    packet, _, rest = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), rest or "default")


def test_a_good_model_runs():
    x = np.array([[1, 2], [3, 4]], np.float32)
    (y,) = pyops.InferenceSession(make_model("linalg_inv")).run(None, {"x": x})
    np.testing.assert_allclose(y @ x, np.eye(2), atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["linalg_inv", "masked_select", "median.dim", "einsum", "gelu", "unique_consecutive", "cat", "_cdist_forward"],
)
def test_what_a_model_may_name(name):
    assert allowed_operators.reason_against(overload(name), {"aten"}) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("from_file", "takes no tensor|of its kind"),
        ("relu_", "writes to its arguments"),
        ("add.out", "writes to its arguments"),
        ("set_.source_Storage", "writes to its arguments"),
        ("item", "not only tensors"),
        ("equal", "not only tensors"),
        ("_local_scalar_dense", "not only tensors"),
        ("rand", "takes no tensor"),
        ("_unsafe_view", "private to torch"),
        ("_pin_memory", "private to torch"),
        ("_unsafe_index.Tensor", "private to torch"),
        ("unsafe_chunk", "unsafe"),
        ("embedding_dense_backward", "gradients"),
        ("slow_conv_transpose3d", "convolution kernels"),
        ("thnn_conv2d", "convolution kernels"),
        ("ctc_loss.IntList", "that only pyops.kernels computes"),
        ("segment_reduce", "that only pyops.kernels computes"),
        ("fractional_max_pool2d", "that only pyops.kernels computes"),
        ("cpu", "dispatcher does not have it"),
        ("to.prim_dtype", "only for TorchScript"),
        ("_fft_c2c", "private to torch"),
        ("_ctc_loss", "private to torch"),
        ("to_sparse", "sparse"),
        ("quantize_per_tensor", "quantized"),
        ("choose_qparams_optimized", "quantized"),
        ("fbgemm_pack_gemm_matrix_fp16", "quantized"),
        ("int_repr", "quantized"),
        ("q_per_channel_scales", "quantized"),
    ],
)
def test_what_a_model_may_not_name(name, why):
    assert re.search(why, allowed_operators.reason_against(overload(name), {"aten"}))


def test_a_string_that_names_something():
    # None of aten's own is left to this rule.
    with torch.library._scoped_library("aten", "FRAGMENT") as library:
        library.define("pyops_read(Tensor self, str path) -> Tensor")
        why = allowed_operators.reason_against(overload("pyops_read"), {"aten"})
        assert why == "its str argument 'path' is not listed as safe"


def test_only_namespaces_that_were_asked_for():
    assert "has not registered operators" in allowed_operators.reason_against(torch.ops.prims.sin.default, {"aten"})


def test_every_operator_of_aten_that_may_be_named_takes_and_gives_plain_data():
    names = {
        "Tensor",
        "int",
        "float",
        "bool",
        "number",
        "ScalarType",
        "Layout",
        "Device",
        "MemoryFormat",
        "str",
        "Generator",
    }
    allowed = 0
    for name in sorted(operator_names()):
        namespace, _, rest = name.partition("::")
        packet = getattr(torch.ops.aten, rest, None) if namespace == "aten" else None
        for item in packet.overloads() if packet is not None else ():
            found = getattr(packet, item)
            if allowed_operators.reason_against(found, {"aten"}):
                continue
            allowed += 1
            schema = describe(found)
            types = [argument.type for argument in schema_arguments(found)]
            for type_ in types:
                assert type_.replace("Optional[", "").replace("List[", "").rstrip("]") in names, schema
            assert any("Tensor" in type_ for type_ in types), schema
            assert all("Tensor" in type_ for type_ in schema_returns(found)), schema
            assert "file" not in schema, schema
            assert "Storage" not in schema, schema
    assert allowed > 900


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("from_file", GOOD, "aten::from_file is not declared: "),
        ("nonsense", GOOD, r"torch \S+ has no operator aten::nonsense"),
        ("__init__", GOOD, r"torch \S+ has no operator aten::__init__"),
        ("linalg_inv", "[" * 100_000, "must be JSON"),
        ("linalg_inv", "{", "must be JSON"),
        ("linalg_inv", '{"A": NaN}', "must be JSON"),
        ("linalg_inv", "9" * 10_000, "must be JSON"),
        ("linalg_inv", "[]", "must be a JSON object"),
        ("linalg_inv", '{"A": {"__reduce__": 0}}', "which is not valid"),
        ("linalg_inv", '{"A": {"tensor": -1}}', "which is not valid"),
        ("linalg_inv", '{"A": {"tensor": true}}', "which is not valid"),
        ("linalg_inv", '{"A": {"tensor": 0, "size": 0}}', "which is not valid"),
        ("linalg_inv", '{"A": {"torch": "os"}}', "which is not valid"),
        ("linalg_inv", '{"A": {"torch": "cuda"}}', "which is not valid"),
        ("linalg_inv", '{"A": 99999999999999999999}', "does not fit int64"),
        ("linalg_inv", '{"A": [[[[[[[0]]]]]]]}', "nested deeper"),
        ("linalg_inv", json.dumps({"A": "x" * (1 << 20)}), "at most 1048576 are allowed"),
    ],
)
def test_a_hostile_model_is_refused_when_it_is_loaded(name, arguments, message):
    with pytest.raises(ModelError, match=message):
        pyops.InferenceSession(make_model(name, arguments))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ('{"A": {"tensor": 7}}', InputError, "the arguments refer to input 7, but the node has 1 inputs"),
        ('{"A": {"complex": 0}}', RuntimeError, "must be batches of square matrices|at least 2 dimensions"),
        ('{"A": {"size": 0}}', InputError, "a size is one integer"),
        ('{"A": "/etc/passwd"}', RuntimeError, "Expected a value of type 'Tensor'"),
        ("{}", RuntimeError, "missing value for argument 'A'"),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_when_it_runs(arguments, error, message):
    session = pyops.InferenceSession(make_model("linalg_inv", arguments))
    with pytest.raises(error, match=message):
        session.run(None, {"x": np.eye(2, dtype=np.float32)})


def test_a_complex_input_is_pairs():
    model = make_model("linalg_inv", '{"A": {"complex": 0}}')
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    with pytest.raises(InputError, match=r"pairs of floats along its last dimension; got float32 of shape \(2, 3\)"):
        pyops.InferenceSession(model).run(None, {"x": np.ones((2, 3), np.float32)})


def test_what_is_no_plain_data_is_no_attribute():
    with pytest.raises(InputError, match=r"\(Generator\) is not plain data"):
        call_encoding.encode({"generator": torch.Generator()})


def test_no_memory_beyond_the_tensor_is_read():
    arguments = '{"self": {"tensor": 0}, "size": [1000000], "stride": [1000]}'
    session = pyops.InferenceSession(make_model("as_strided", arguments))
    with pytest.raises(RuntimeError, match="out of bounds"):
        session.run(None, {"x": np.eye(2, dtype=np.float32)})


HOSTILE = """
import warnings
import numpy as np, torch, exporters
from exporters._fallback import fallback_node as kernel
from exporters._torch.private.operators import find_overload

warnings.simplefilter("ignore")
torch.manual_seed(0)
BIG = 10**9
F, I = torch.randn, torch.tensor

def attempt(operator, **arguments):
    tensors = []

    def spelled(value):
        if isinstance(value, torch.Tensor):
            tensors.append(value.numpy())
            return {"tensor": len(tensors) - 1}
        return [spelled(item) for item in value] if isinstance(value, list) else value

    text = json.dumps({name: spelled(value) for name, value in arguments.items()})
    try:
        kernel.run(find_overload(operator), text, tensors)
        print("ran")
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])

import json
norm = dict(input=F(5, 5000), weight=F(2), running_mean=F(5000), running_var=F(5000), eps=1e-5, momentum=0.1)
attempt("aten::batch_norm", **norm, training=False, cudnn_enabled=False)
attempt("aten::native_batch_norm", **norm, training=True)
attempt("aten::_native_batch_norm_legit_functional", **norm, training=True)
attempt("aten::instance_norm", **norm, use_input_stats=True, cudnn_enabled=False)
attempt("aten::_native_batch_norm_legit.no_stats", input=F(2, 3), weight=None, bias=None, training=False,
        momentum=0.1, eps=0.1)
attempt("aten::embedding_bag", weight=F(10, 3), indices=I([1, 2]), offsets=I([0, -BIG]))
attempt("aten::embedding_bag", weight=F(10, 3), indices=I([1, BIG]), offsets=I([0, 1]))
attempt("aten::lu_unpack", LU_data=F(50, 5), LU_pivots=I([[1, 2, 3]], dtype=torch.int32))
attempt("aten::lu_unpack", LU_data=F(50, 5), LU_pivots=I([1, 2, 3, 4, BIG], dtype=torch.int32))
for pivots in ([BIG, 1], [1, -1]):
    attempt("aten::linalg_ldl_solve", LD=F(2, 2), pivots=I(pivots, dtype=torch.int32), B=F(2, 2))
attempt("aten::linalg_ldl_solve", LD=F(0, 0), pivots=I([], dtype=torch.int32), B=F(0, 2))
attempt("aten::_weight_norm_interface", v=torch.zeros(0), g=F(1))
for operator in ("aten::_weight_norm_interface", "aten::_weight_norm"):
    attempt(operator, v=F(1000, 1000), g=F(1))
attempt("aten::_weight_norm_interface", v=F(100, 2), g=F(1, 2), dim=1)
attempt("aten::_weight_norm", v=F(3, 4, 5), g=F(1), dim=1)
attempt("aten::_grouped_mm", self=F(8, 8), mat2=F(2, 8, 8), offs=I([4, BIG], dtype=torch.int32))
attempt("aten::_pack_padded_sequence", input=F(5, 2, 3), lengths=I([BIG, 2]), batch_first=False)
packed = dict(batch_first=True, padding_value=0.0, total_length=3)
for sizes in ([2, 1, 2], [], [4, 1, 0], [2, 2], [2, 2, 1]):
    attempt("aten::_pad_packed_sequence", data=F(5, 3), batch_sizes=I(sizes, dtype=torch.int64), **packed)
recurrent = dict(has_biases=False, num_layers=BIG, dropout=0.0, train=False, bidirectional=False, batch_first=False)
attempt("aten::lstm.input", input=F(3, 2, 4), hx=[F(1, 2, 5), F(1, 2, 5)], params=[F(20, 4), F(20, 5)], **recurrent)
attempt("aten::lstm.input", input=F(3, 2, 4), hx=[F(1, 1, 2, 5), F(1, 2, 5)], params=[F(20, 4), F(20, 5)],
        **recurrent | dict(num_layers=1))
del recurrent["batch_first"]
attempt("aten::gru.data", data=F(5, 3), batch_sizes=torch.zeros(0, dtype=torch.int64), hx=F(1, 2, 4),
        params=[F(12, 3), F(12, 4)], **recurrent | dict(num_layers=1))
attempt("aten::batch_norm", input=F(5, 5))
for operator in ("aten::linalg_matrix_power", "aten::matrix_power"):
    attempt(operator, self=F(2, 2), n=-(2**63))
attempt("aten::random.from", self=F(2), **{"from": 2**63 - 1, "to": None})
attempt("aten::binomial", count=I([1.0, torch.nan]), prob=F(2))
attempt("aten::_pdist_forward", self=F(200, 10**7, 0))
attempt("aten::repeat_interleave.Tensor", repeats=I([2**62] * 4 + [5]))
attempt("aten::repeat_interleave.self_int", self=F(2), repeats=2)
attempt("aten::scaled_dot_product_attention", query=F(1, 1, 1, 8), key=F(1, 1, 3, 8), value=F(1, 1, BIG // 10**3, 8))
attempt("aten::scaled_dot_product_attention", query=F(1, 2, 3, 8), key=F(1, 0, 3, 8), value=F(1, 2, 3, 8),
        enable_gqa=True)
attempt("aten::avg_pool2d", self=I([[[-(2**63)]]]), kernel_size=[1, 1], divisor_override=-1)
for dtype, least in ((torch.int64, -(2**63)), (torch.int32, -(2**31))):
    lowest = torch.full((2,), least, dtype=dtype)
    for other in (I([1, -1], dtype=dtype), I([1, -2], dtype=dtype), -1):
        attempt("aten::div.Tensor_mode", self=lowest, other=other, rounding_mode="trunc")
    attempt("aten::lcm", self=I([6, 7], dtype=dtype), other=lowest)
small, image = dict(output_size=[5, 5], scales_h=1e-6, scales_w=1e-30), F(2, 3, 4, 4)
attempt("aten::_upsample_bilinear2d_aa", self=image, align_corners=False, **small)
attempt("aten::_upsample_bicubic2d_aa", self=image, align_corners=False, **small)
attempt("aten::upsample_nearest2d", self=image.byte(), **small)
attempt("aten::upsample_nearest2d", self=image, output_size=[9, 6], scales_h=2.3, scales_w=None)
attempt("aten::upsample_nearest2d", self=image, output_size=[9, 6], scales_h=2.3, scales_w=1.3)
attempt("aten::upsample_nearest1d", self=F(1, 1, 4), output_size=[4], scales=1e-30)
attempt("aten::upsample_nearest2d", self=image, output_size=5)
for bad in (torch.nan, torch.inf):
    for operator in ("aten::linalg_eigvals", "aten::_linalg_eigvals"):
        attempt(operator, self=I([[bad, bad, 1], [1, 2, 3], [bad, 5, 7]]))
attempt("aten::linalg_eigvals", self=I([[1e30, 2.5], [7, 1e30]]))
attempt("aten::max_pool1d", self=F(2, 3), kernel_size=[2**63 - 1], stride=[2], padding=[5], ceil_mode=True)
attempt("aten::avg_pool1d", self=F(2, 3), kernel_size=[3], padding=[2**40])
attempt("aten::grid_sampler", input=image, grid=F(2, 3, 3, 2), interpolation_mode=3, padding_mode=0, align_corners=True)
attempt("aten::special_laguerre_polynomial_l.n_scalar", x=I([0.5]), n=2**40)
attempt("aten::special_laguerre_polynomial_l.n_scalar", x=I([0, -3, torch.inf]), n=2**40)
attempt("aten::special_legendre_polynomial_p", x=F(2) / 9, n=I([5, 2**40]))
attempt("aten::special_legendre_polynomial_p", x=F(2) / 9, n=I([5, 100]))
attempt("aten::special_shifted_chebyshev_polynomial_u.n_scalar", x=I([1e-30]), n=2**62)
attempt("aten::special_shifted_chebyshev_polynomial_u.n_scalar", x=I([0, 0.5, 2]), n=2**62)

mean, variance = torch.zeros(3), torch.ones(3)
attempt("aten::batch_norm", **norm | dict(input=F(5, 3), weight=F(3), running_mean=mean, running_var=variance),
        bias=F(3), training=True, cudnn_enabled=False)
print(mean.tolist(), variance.tolist())
one = torch.ones(1, 1)
attempt("aten::cov", self=one, aweights=torch.ones(1))
print(one.tolist())
"""

EXPECTED = """
InputError aten::batch_norm: expected weight of shape (5000,), one number for each channel
InputError aten::native_batch_norm: expected weight of shape (5000,), one number for each channel
InputError aten::_native_batch_norm_legit_functional: expected weight of shape (5000,), one number for each channel
InputError aten::instance_norm: expected weight of shape (5000,), one number for each channel
InputError aten::_native_batch_norm_legit: expected running_mean, which is required outside training
InputError aten::embedding_bag: expected offsets in 0..2
InputError aten::embedding_bag: expected indices in 0..9
InputError aten::lu_unpack: expected pivots of shape (5,)
InputError aten::lu_unpack: expected pivots in 1..50
InputError aten::linalg_ldl_solve: expected pivots in 1..2
InputError aten::linalg_ldl_solve: expected negative pivots in pairs
ran
InputError aten::_weight_norm_interface: expected tensors that are not empty, and v with dimensions
InputError aten::_weight_norm_interface: expected 1000 numbers in g, not 1
InputError aten::_weight_norm: expected 1000 numbers in g, not 1
ran
ran
InputError aten::_grouped_mm: expected offs in 0..8
InputError aten::_pack_padded_sequence: expected lengths in 1..5
InputError aten::_pad_packed_sequence: expected positive batch_sizes in descending order
InputError aten::_pad_packed_sequence: expected positive batch_sizes in descending order
InputError aten::_pad_packed_sequence: expected positive batch_sizes in descending order
InputError aten::_pad_packed_sequence: expected batch_sizes with a sum of 5, the rows of data
ran
InputError aten::lstm: expected 2000000000 params for 1000000000 layers, not 2
InputError aten::lstm: expected hx of two or three dimensions
InputError aten::gru: expected positive batch_sizes in descending order
RuntimeError aten::batch_norm() is missing value for argument 'weight'. Declaration: aten::batch_norm(Tensor input, \
Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, \
bool cudnn_enabled) -> Tensor
InputError aten::linalg_matrix_power: expected n in -9223372036854775807..9223372036854775807, not -9223372036854775808
InputError aten::matrix_power: expected n in -9223372036854775807..9223372036854775807, not -9223372036854775808
InputError aten::random: expected from in -9223372036854775808..9223372036854775806, not 9223372036854775807
InputError aten::binomial: expected a count without NaN
InputError aten::_pdist_forward: expected a matrix
InputError aten::repeat_interleave: expected repeats with a sum below 2**62
ran
InputError aten::scaled_dot_product_attention: expected a key and a value of the same length
InputError aten::scaled_dot_product_attention: expected at least one head in key and value
InputError aten::avg_pool2d: expected floats, or a divisor_override other than -1
InputError aten::div: expected no division of -9223372036854775808 by -1
ran
InputError aten::div: expected no division of -9223372036854775808 by -1
InputError aten::lcm: expected other above -9223372036854775808
InputError aten::div: expected no division of -2147483648 by -1
ran
InputError aten::div: expected no division of -2147483648 by -1
InputError aten::lcm: expected other above -2147483648
InputError aten::_upsample_bilinear2d_aa: expected scales_h of at least 5/4, or None
InputError aten::_upsample_bicubic2d_aa: expected scales_h of at least 5/4, or None
InputError aten::upsample_nearest2d: expected scales_h of at least 5/4, or None
ran
InputError aten::upsample_nearest2d: expected scales_w of at least 6/4, or None
InputError aten::upsample_nearest1d: expected scales of at least 4/4, or None
InputError aten::upsample_nearest2d: expected an output_size of 2 numbers
InputError aten::linalg_eigvals: expected finite numbers; find where others come from, with numpy.isfinite
InputError aten::_linalg_eigvals: expected finite numbers; find where others come from, with numpy.isfinite
InputError aten::linalg_eigvals: expected finite numbers; find where others come from, with numpy.isfinite
InputError aten::_linalg_eigvals: expected finite numbers; find where others come from, with numpy.isfinite
ran
InputError aten::max_pool1d: expected kernel_size in -16777216..16777216, not 9223372036854775807
InputError aten::avg_pool1d: expected padding in -2147483648..2147483648, not 1099511627776
InputError aten::grid_sampler: expected interpolation_mode in 0..2, not 3
InputError aten::special_laguerre_polynomial_l: expected orders n with a sum of at most 2**30
ran
InputError aten::special_legendre_polynomial_p: expected orders n with a sum of at most 2**30
ran
InputError aten::special_shifted_chebyshev_polynomial_u: expected orders n with a sum of at most 2**30
ran
ran
[0.0, 0.0, 0.0] [1.0, 1.0, 1.0]
ran
[[1.0]]
"""


def test_no_kernel_reaches_beyond_its_tensors():
    run_plain_script(HOSTILE, EXPECTED)


PLANTED = """
import os, signal
import numpy as np, torch
from exporters._fallback import fallback_node as kernel
from exporters._torch.private.operators import find_overload

def dies(*args, **kwargs):
    print("died", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)

def attempt(schema, arguments, *arrays):
    namespace, _, rest = schema.partition("::")
    with torch.library._scoped_library(namespace, "FRAGMENT") as library:
        library.define(f"{rest} -> Tensor")
        library.impl(rest.partition("(")[0], dies, "CPU")
        try:
            kernel.run(find_overload(schema.partition("(")[0]), arguments, list(map(np.asarray, arrays)))
        except Exception as error:
            print(type(error).__name__, error)

x, nan = np.ones(3, np.float32), np.full((2, 2), np.nan, np.float32)
big = 2**63 - 1
for namespace in ("aten", "planted"):
    attempt(f"{namespace}::pool_a(Tensor self, int[1] kernel_size)",
            f'{{"self": {{"tensor": 0}}, "kernel_size": [{big}]}}', x)
    attempt(f"{namespace}::pool_b(Tensor self, SymInt[2] dilation=1)",
            f'{{"self": {{"tensor": 0}}, "dilation": [1, {big}]}}', x)
    attempt(f"{namespace}::split_a(Tensor self, SymInt num_parts)",
            f'{{"self": {{"tensor": 0}}, "num_parts": {-big}}}', x)
    attempt(f"{namespace}::pad_a(Tensor self, int? length=None)",
            '{"self": {"tensor": 0}, "length": {"size": 1}}', x, big)
    attempt(f"{namespace}::general_eigvals(Tensor A)", '{"A": {"tensor": 0}}', nan)
pivots = np.array([1, 2**30], np.int32)
attempt("aten::solve_a(Tensor LU, Tensor pivots)", '{"LU": {"tensor": 0}, "pivots": {"tensor": 1}}', np.eye(2), pivots)
attempt("aten::bag_a(Tensor weight, Tensor indices, Tensor offsets)",
        '{"weight": {"tensor": 0}, "indices": {"tensor": 1}, "offsets": {"tensor": 2}}', np.eye(2), [0, 1], [0, 2**30])
attempt("aten::norm_a(Tensor input, Tensor? weight, float momentum, float eps)",
        '{"input": {"tensor": 0}, "weight": {"tensor": 1}, "momentum": 0.1, "eps": 0.1}', np.eye(2), x)
attempt("aten::unpack_a(Tensor data, Tensor batch_sizes)", '{"data": {"tensor": 0}, "batch_sizes": {"tensor": 1}}',
        np.eye(2), [2, 2**30])
attempt("aten::last_a(Tensor self, int[1] kernel_size)", '{"self": {"tensor": 0}, "kernel_size": [3]}', x)
"""

STOPPED = """
InputError {0}::pool_a: expected kernel_size in -16777216..16777216, not 9223372036854775807
InputError {0}::pool_b: expected dilation in -2147483648..2147483648, not 9223372036854775807
InputError {0}::split_a: expected num_parts in -2147483648..2147483648, not -9223372036854775807
InputError {0}::pad_a: expected length in -1099511627776..1099511627776, not 9223372036854775807
InputError {0}::general_eigvals: expected finite numbers; find where others come from, with numpy.isfinite
"""


def test_operators_of_later_releases_are_checked_by_their_arguments():
    others = """
InputError aten::solve_a: expected pivots in 1..2
InputError aten::bag_a: expected offsets in 0..2
InputError aten::norm_a: expected weight of shape (2,), one number for each channel
InputError aten::unpack_a: expected positive batch_sizes in descending order
died
"""
    expected = STOPPED.format("aten") + STOPPED.format("planted").lstrip() + others.lstrip()
    run_plain_script(PLANTED, expected, code=-signal.SIGSEGV)


def test_inputs_are_shared_and_not_written_to():
    x = np.eye(2, dtype=np.float32)
    x.flags.writeable = False
    tensor = sharing_tensor(x)
    assert tensor.data_ptr() == x.ctypes.data
    session = pyops.InferenceSession(make_model("view_copy", '{"self": {"tensor": 0}, "size": [4]}'))
    session.run(None, {"x": x})
    np.testing.assert_array_equal(x, np.eye(2))


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text() | st.complex_numbers()
    | st.sampled_from([torch.float32, torch.strided, torch.channels_last])
)  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(st.text(), SCALARS | st.lists(SCALARS, max_size=3)))
def test_a_call_comes_back_from_its_json(arguments):
    back = call_encoding.decode(call_encoding.encode(arguments), ())
    assert repr(back) == repr(arguments)
