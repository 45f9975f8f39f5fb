"""The kernel library in an export, for calls that torch's samples lack, or have only for floats."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

import exporters
import pyops
from exporters._library.row_table import absent
from exporters._torch.tensors import as_onnx_array
from tests.helpers.scripts import run_plain_script


class Calls(torch.nn.Module):
    """All calls as one model, which is exported in the time of one."""

    def forward(self, *args):
        results, rest = {}, iter(args)
        for name, (function, given) in CALLS.items():
            results[name] = function(*(next(rest) for _ in given))
        return results


def tensors(*values, dtype=None):
    return tuple(torch.tensor(value, dtype=dtype) for value in values)


NAN = float("nan")
INTS = tensors([[3, -1, 2, 2], [7, 0, 0, 5]], dtype=torch.int32)
FLOATS = tensors([[3.0, -1.0, 2.5, 2.0], [NAN, 0.0, -0.0, 5.0]])
SCALAR = tensors(2.5)

CALLS = {
    "cumprod of integers": (lambda x: torch.cumprod(x, 1), INTS),
    "cumprod as another type": (lambda x: torch.cumprod(x, 0, dtype=torch.float64), INTS),
    "cumprod as a shorter type": (lambda x: torch.cumprod(x, 1, dtype=torch.int8), INTS),
    "cumprod of booleans": (lambda x: torch.cumprod(x > 0, 1), INTS),
    "running logarithms of sums": (lambda x: torch.logcumsumexp(x, 0), tensors([-200.0, 0.0, 1.0, 300.0])),
    "largest of all": (torch.amax, INTS),
    "largest of all with NaN": (lambda x: torch.amax(x, keepdim=True), FLOATS),
    "extremes of all": (torch.aminmax, INTS),
    "extremes of a dimension": (lambda x: torch.aminmax(x, dim=1, keepdim=True), INTS),
    "smallest of a scalar": (lambda x: torch.amin(x, 0), SCALAR),
    "first of a scalar": (lambda x: torch.topk(x, 1), SCALAR),
    "product of a scalar": (lambda x: torch.prod(x, 0), tensors(3, dtype=torch.int32)),
    "parts of nothing": (lambda x: torch.cat(x.split(2)), (torch.zeros(0, 3),)),
    "stable sort": (lambda x: torch.sort(x, dim=1, stable=True), INTS),
    "stable descending sort": (lambda x: torch.sort(x, dim=1, stable=True, descending=True), INTS),
    "deviation under a mask": (lambda x: torch.masked.std(x, 1, mask=x < 3), tensors([[1.0, 2.0, 4.0]])),
    "division by integers": (torch.ops.aten.divide.Tensor, tensors([1.0, 2.0], [3, 4])),
    "division of integers": (torch.ops.aten.divide.Tensor, tensors([1, 2], [3, 4])),
    "subtraction of a float": (lambda x: torch.ops.aten.subtract.Tensor(x, 0.5), INTS),
    "multiplication by booleans": (torch.ops.aten.multiply.Tensor, tensors([1.0, 2.0], [True, False])),
    "multiplication of booleans": (
        lambda x: tuple(torch.ops.aten.multiply.Tensor(x, number) for number in (2, 0.5, True)),
        tensors([True, False]),
    ),
    "subtraction of floats": (torch.ops.aten.subtract.Tensor, tensors([1, 2], [0.5, 4.0])),
    "deviation of integers": (lambda x: torch.masked.std(x, 1, mask=x < 3), INTS),
    "count with weights": (torch.bincount, tensors([1, 3, 1], [0.5, 2.0, 0.25])),
    "count with integers as weights": (lambda x, w: torch.bincount(x, w, 6), tensors([1, 3, 1], [5, 2, 2])),
    "histogram between doubles": (
        lambda x: torch.histogram(x, 3, range=(0.1, 2.7))[1],
        tensors([0.1, 1.0, 2.7], dtype=torch.float64),
    ),
    "median of integers": (lambda x: torch.median(x, 1)[0], INTS),
    "k-th of a size": (lambda x: torch.kthvalue(x, x.shape[1] // 2, 1)[0], FLOATS),
    "bucket of a number": (lambda x: torch.bucketize(2, x), tensors([1.0, 2.0, 3.0])),
    "bucket of a float among integers": (lambda x: torch.bucketize(2.5, x), tensors([1, 2, 3])),
    "buckets as int32": (lambda x, y: torch.bucketize(x, y, out_int32=True, right=True), (INTS[0], tensors([0, 2])[0])),
    "search for floats among integers": (torch.searchsorted, tensors([1, 2, 3], [2.5, 0.0])),
    "search for NaN": (torch.searchsorted, tensors([1.0, 2.0, NAN], [NAN, 3.0])),
    "search for a float among integers": (lambda x: torch.searchsorted(x, 2.5), tensors([1, 2, 3])),
    "places of a scalar": (torch.nonzero, SCALAR),
    "places of nothing": (torch.nonzero, tensors(0, dtype=torch.int8)),
    "no repeated NaN": (lambda x: torch.unique_consecutive(x, True, True), tensors([1.0, 1.0, NAN, NAN])),
    "no repeated columns": (lambda x: torch.unique_consecutive(x, return_inverse=True, dim=1), INTS),
    "no repeated elements along 0": (lambda x: torch.unique_consecutive(x, dim=0), tensors([True, True, False])),
    "another type on the diagonal": (torch.diagonal_scatter, (torch.zeros(2, 3), tensors([1, 2])[0])),
    "no dimension squeezed": (lambda x: x.squeeze(()), FLOATS),
    "other strides": (lambda x, y: torch.as_strided_scatter(x, y, (2, 2), (4, 2), 1), (FLOATS[0], torch.ones(2, 2))),
    "windows with a divisor": (
        lambda x, y, z: (
            torch.nn.functional.avg_pool2d(x, (1, 2), divisor_override=-2),
            torch.nn.functional.avg_pool2d(y, (1, 5), 3, ceil_mode=True, divisor_override=4),
            torch.nn.functional.avg_pool2d(z, 8, 8, divisor_override=2**12),
        ),
        (torch.tensor([[[-3, -2, 5, 6]]]), torch.arange(11.0).reshape(1, 1, 11), torch.ones(1, 64, 64).half()),
    ),
    "added at flat places": (
        lambda x, y: (
            torch.put(x, torch.tensor([0, 0, -1]), y),
            torch.put(x, torch.tensor([0, 0, -1]), y, accumulate=True),
            torch.put(x > 1, torch.tensor([[1], [2], [-2]]), y > 5),
        ),
        tensors([[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0, 7.0], dtype=torch.float16),
    ),
    "elements where a mask is true": (
        lambda x, mask: (
            x.masked_select(mask[:, :1] > 0),
            x[0].masked_select(mask > 3),
            x[0, 0].masked_select(mask < 9),
            x[0, 0].masked_select(x[0, 1] != 0),
        ),
        (FLOATS[0][:, 1:], INTS[0][:, 1:]),
    ),
    "slices reduced by an index": (
        lambda x, y: (
            x.index_reduce(1, torch.tensor([0, 3, 0]), y[:, :3], "mean", include_self=False),
            x.index_reduce(-1, torch.tensor([1, 1, 1, 1]), y, "amax"),
            x[0, 0].index_reduce(0, torch.tensor(0), y[0, 0], "prod"),
        ),
        (INTS[0], INTS[0] * 2 - 5),
    ),
    "one element": (lambda x: x.clone().resize_as_(torch.tensor(0)), FLOATS),
    "fewer elements": (lambda x: x.clone().resize_as_(torch.empty(3)), FLOATS),
    "scattered sums": (lambda x: x.scatter(1, torch.tensor([[0, 0]]), 2, reduce="add"), INTS),
    "scattered products": (
        lambda x, y: x.scatter(0, torch.tensor([[1, 1, 0]]), y, reduce="multiply"),
        (INTS[0], INTS[0] * 2),
    ),
    "truth of a scalar": (lambda x: (x.all(0), x.any(-1, keepdim=True), x.all(dim=(0,)), x.any(dim=(0,))), SCALAR),
    "norms of a scalar": (
        lambda x: tuple(torch.linalg.vector_norm(x, order, dim=0) for order in (2, 0, -1, math.inf)),
        tensors(-2.5),
    ),
    "norm of a scalar as another type": (
        lambda x: torch.linalg.vector_norm(x, dim=0, keepdim=True, dtype=torch.float64),
        SCALAR,
    ),
    "scattered means": (
        lambda x, y: tuple(
            x.scatter_reduce(1, torch.tensor([[0, 0, 2], [1, 1, 1]]), y, "mean", include_self=both)
            for both in (True, False)
        ),
        (torch.ones(2, 3), torch.arange(6.0).reshape(2, 3)),
    ),
    "writing at places of int32": (
        lambda x, rows, columns, y: (
            torch.index_put(x, (rows, columns.long()), y, accumulate=True),
            torch.ops.aten.index_put(x, [None, rows], y),
            torch.ops.aten._unsafe_index_put(x, [columns], y, True),
        ),
        (torch.ones(2, 2), *tensors([0, 0], [1, 1], dtype=torch.int32), *tensors([2.0, 3.0])),
    ),
    "copy of a row": (lambda x, y: x.clone().copy_(y), (FLOATS[0], INTS[0][1])),
    "numbers as complex32": (lambda x: torch.view_as_real(x.to(torch.complex32)), FLOATS),
    "wide output padding": (
        lambda x, w, b: (
            torch.conv_transpose1d(x, w, b, stride=2, padding=1, output_padding=3, dilation=4),
            torch.conv_transpose1d(x[0], w, None, stride=2, padding=4, output_padding=2, dilation=4, groups=2),
        ),
        (torch.arange(8.0).reshape(1, 2, 4), torch.arange(12.0).reshape(2, 2, 3), torch.ones(2)),
    ),
    "convolution of volumes without a bias": (
        lambda x, w: (torch.conv3d(x, w), torch.conv3d(x[0], w, stride=2, padding=(1, 0, 1), dilation=[1, 2, 1])),
        (torch.arange(54.0).reshape(2, 1, 3, 3, 3), torch.arange(24.0).reshape(3, 1, 2, 2, 2)),
    ),
    "normalization outside training": (
        lambda x, mean, variance: torch.ops.aten._native_batch_norm_legit_functional(
            x, None, mean, mean, variance, False, 0.1, 1e-5
        ),
        (torch.arange(6.0).reshape(2, 3), *tensors([1.0, 2.0, 3.0], [0.5, 1.0, 2.0])),
    ),
    "dropout of everything": (lambda x: torch.native_dropout(x, 1.0, True), FLOATS),
    "cross entropy of another float type": (
        lambda x, y, weight: tuple(
            torch.nn.functional.cross_entropy(*args, label_smoothing=smoothing)
            for args in ((x, y), (y, x), (x, y, weight), (y, x, weight.float()))
            for smoothing in (0.0, 0.3)
        ),
        (torch.tensor([[0.7, 0.1, 0.2]]), *tensors([[0.3, 0.3, 0.4]], [1.0, 2.0, 0.5], dtype=torch.float64)),
    ),
    "normalization of float16 in training": (
        lambda x, mean, variance: (
            *torch.native_batch_norm(x, mean, None, None, None, True, 0.1, 1e-5),
            # In graphs of torch, the other two, the running statistics, are float32.
            *torch.ops.aten._native_batch_norm_legit_functional(x, mean, None, mean, variance, True, 0.5, 1e-5)[:3],
        ),
        tensors([[0.0, 1.0, 2.0], [1.0, 1.5, -2.0]], [1.0, 2.0, 3.0], [0.5, 1.0, 2.0], dtype=torch.float16),
    ),
    "means of nothing": (
        lambda x: (x[x > 9].mean(), x[x[:, 0] > 9].mean(0), x[:0].mean(0, keepdim=True), x[x < 3].mean()),
        tensors([[1.0, 5.0], [2.0, 3.0]]),
    ),
    "statistics of normalization in float64": (
        lambda x, mean, variance: torch.ops.aten._native_batch_norm_legit_functional(
            x, None, mean, mean, variance, True, 0.3, 1e-5
        ),
        tensors([[0.0, 1.0, 2.0], [1.0, 1.5, -2.0]], [1.0, 2.0, 3.0], [0.5, 1.0, 2.0], dtype=torch.float64),
    ),
    "norms in float64": (
        lambda x: (
            *(torch.linalg.vector_norm(x, order, dim=0, keepdim=True) for order in (3, 0.1, -2.7)),
            torch.linalg.vector_norm(x.float(), 3, dtype=torch.float64),
        ),
        tensors([0.3, -0.7, 2.0], dtype=torch.float64),
    ),
    **{
        f"added at places in {dtype}": (
            lambda x, i: (
                x.index_add(0, i, x[:2]),
                x.index_put((i,), x[:2], accumulate=True),
                x.index_put((x[:, 0] > 0,), x[0], accumulate=True),
                x.scatter_add(0, i[None], x),
                *(x.scatter_reduce(0, i[None], x, reduce) for reduce in ("sum", "prod", "amax")),
                x.scatter_reduce(0, i[None], x, "sum", include_self=False),
            ),
            (torch.tensor([[1.0, 2.0], [-3.0, 0.5]], dtype=dtype), torch.tensor([0, 0])),
        )
        for dtype in (torch.float16, torch.bfloat16)
    },
    "segments that begin with": (
        lambda x, n: torch.segment_reduce(x, "prod", lengths=n, initial=0.1),
        (torch.tensor([2.0, 3.0], dtype=torch.float64), torch.tensor([2, 0])),
    ),
}


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter", "ignore:index_reduce")
def test_they_compute_what_torch_does():
    args = tuple(arg for _, given in CALLS.values() for arg in given)
    program = exporters.export(Calls().eval(), args, verbose=False)
    session = pyops.InferenceSession(program)
    feed = zip([item.name for item in session.get_inputs()], map(as_onnx_array, args), strict=True)
    actual = iter(session.run(None, dict(feed)))
    for name, returned in Calls()(*args).items():
        for leaf in returned if isinstance(returned, tuple) else (returned,):
            expected, found = as_onnx_array(leaf), next(actual)
            assert (name, found.dtype, found.shape) == (name, expected.dtype, expected.shape)
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=name)
    assert not program.fallbacks


def test_what_the_library_does_not_carry_falls_back(model):
    module = model(lambda x: torch.view_as_real(torch.logcumsumexp(torch.complex(x, x), 0)))
    with pytest.raises(exporters.ExportError, match="aten::logcumsumexp"):
        exporters.export(module, (torch.eye(2),), verbose=False)
    (found,) = exporters.export(module, (torch.eye(2),), fallback=True, verbose=False).fallbacks
    assert found.operator == "aten::logcumsumexp"


class Quantile(torch.nn.Module):
    def forward(self, x):
        return torch.special.ndtri(x)


def test_a_type_that_an_op_lacks_is_left_to_torch_if_that_is_wanted():
    x = torch.rand(3).half()
    with pytest.raises(
        exporters.ExportError, match=r"(?s)Ndtri: input 'x' is float16; .*float32, float64.*fallback=True"
    ):
        exporters.export(Quantile().eval(), (x,), verbose=False)
    program = exporters.export(Quantile().eval(), (x,), fallback=True, verbose=False)
    assert [node.op_type for node in program.model.graph] == ["special_ndtri"]


@pytest.mark.parametrize(("rank", "counts"), [(1, (3,)), (2, (4, 3)), (3, (3, 2, 1)), (2, (None, 5))])
@pytest.mark.parametrize("size", [6, 7])
def test_means_of_adaptive_windows_at_other_sizes(model, rank, counts, size):
    pool = getattr(F, f"adaptive_avg_pool{rank}d")
    module = model(lambda x: pool(x, counts))
    samples = [(torch.rand(2, 3, number, *(5, 4)[: rank - 1]),) for number in (size, 5, 8, 12, 13)]
    program = exporters.export(module, samples[0], dynamic_shapes=({2: torch.export.Dim.DYNAMIC},), verbose=False)
    assert exporters.verify(module, program=program, samples=samples).ok
    assert {node.domain for node in program.model.graph} == {""}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_statistics_of_batches_of_other_sizes(model, dtype):
    mean, variance = torch.tensor([[1.0, 2.0, 3.0], [0.5, 1.0, 2.0]], dtype=dtype)
    normalize = torch.ops.aten._native_batch_norm_legit_functional
    module = model(
        lambda x: [*normalize(x, variance, mean, mean, variance, True, 0.3, 1e-5), *torch.var_mean(x, dim=0)]
    )
    samples = [(torch.rand(size, 3, 2, dtype=dtype),) for size in (4, 2, 7)]
    program = exporters.export(module, samples[0], dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), verbose=False)
    assert exporters.verify(module, program=program, samples=samples).ok
    assert {node.domain for node in program.model.graph} == {""}


def test_losses_of_each_example_of_dynamic_batches(model):
    module = model(
        lambda x, target: [
            part
            for loss in (F.nll_loss, F.cross_entropy)
            for each in (loss(x, target, reduction="none"), loss(x, target, reduction="none", ignore_index=1))
            for part in (each, each.sum(), each[None] + 1)
        ]
    )
    samples = [(torch.rand(size, 3), torch.arange(size) % 3) for size in (4, 2, 7)]
    batch = {0: torch.export.Dim.DYNAMIC}
    program = exporters.export(module, samples[0], dynamic_shapes=(batch, batch), verbose=False)
    assert exporters.verify(module, program=program, samples=samples).ok


def test_means_of_parts_that_may_be_empty(model):
    module = model(lambda x: (x[2:].mean(), x[: x.shape[0] // 3].mean(0), x[:, 3:].var(1)))
    samples = [(torch.rand(size, 3),) for size in (5, 2, 3)]
    program = exporters.export(module, samples[0], dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), verbose=False)
    assert exporters.verify(module, program=program, samples=samples).ok


@pytest.mark.parametrize(
    "x", [torch.full((1, 6, 7), math.inf).index_fill(2, torch.tensor([0, 1]), 1.0), torch.ones(2, 64, 48).half()]
)
def test_means_of_adaptive_windows(model, x):
    module = model(lambda x: [F.adaptive_avg_pool2d(x, counts) for counts in ((4, 3), (3, 1), (0, 2))])
    assert exporters.verify(module, args=(x,)).ok


@pytest.mark.filterwarnings("ignore:the exported model draws random numbers:exporters.CaptureWarning")
def test_random_numbers_of_float16_are_torchs(model):
    module = model(lambda x: (torch.rand(x.shape[0], 500, dtype=x.dtype), torch.randn(2, 500, dtype=x.dtype)))
    program = exporters.export(
        module, (torch.ones(2).half(),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), verbose=False
    )
    uniform, normal = pyops.InferenceSession(program).run(None, {"x": np.ones(4, np.float16)})
    assert (uniform.shape, uniform.dtype) == ((4, 500), np.float16)
    assert 0 <= uniform.min() < 0.01 < 0.99 < uniform.max() < 1
    assert (uniform.astype(np.float32) * 2**11 % 1 == 0).all()
    assert normal.dtype == np.float16
    assert abs(normal.mean()) < 0.2
    assert 0.8 < normal.astype(np.float32).std() < 1.2


def test_what_each_release_of_torch_does_not_have():
    dropped = [] if torch.__version__.startswith("2.13.") else ["aten::cholesky"]
    assert absent == dropped


@pytest.mark.exhaustive
def test_torch_may_lack_an_operator_that_the_library_carries():
    # Modules of torch that name every operator are imported while torch has them all.
    script = """
import torch
import torch._dynamo.side_effects

aten = type(torch.ops.aten)
find = aten.__getattr__

def find_others(self, name):
    if name == "cholesky_inverse":
        raise AttributeError(name)
    return find(self, name)

aten.__getattr__ = find_others
vars(torch.ops.aten).pop("cholesky_inverse", None)

import exporters
from exporters._library.row_table import absent

print("aten::cholesky_inverse" in absent, exporters.registered_by("aten::cholesky_solve"))
try:
    exporters.registered_by("aten::cholesky_inverse")
except exporters.ExportError as error:
    print(str(error).replace(torch.__version__, "VERSION").partition(";")[0])
"""
    run_plain_script(script, "True kernels\ntorch VERSION has no operator aten::cholesky_inverse")
