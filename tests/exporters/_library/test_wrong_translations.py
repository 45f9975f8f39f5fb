"""Calls that torch's exporter translates wrongly, or to nodes that ONNX Runtime rejects, in nodes of ONNX."""

import functools
import math

import numpy as np
import onnx
import pytest
import torch

import exporters
import pyops
from exporters._torch.tensors import as_onnx_array
from tests.helpers.tiers import first_quick

pytestmark = [
    pytest.mark.usefixtures("own_registrations"),
    pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim arg"),
    pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8"),
    pytest.mark.filterwarnings(r"ignore:\w+\(\). degrees of freedom is <= 0"),
    pytest.mark.filterwarnings("ignore::exporters.CaptureWarning"),  # some calls fix a size
    # Torch's, of its own LSTM: how it computes projections, and in torch.export.
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
    pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes self.layers:UserWarning"),
]

NAN, INF = math.nan, math.inf
LARGEST, LEAST = torch.finfo(torch.float32).max, 2.0**-149
EXTREMES = [
    [3.0, NAN, INF, -INF, NAN, 0.0, -0.0, LARGEST],
    [INF, INF, NAN, 2 * LEAST, LEAST, LARGEST, -LARGEST, NAN],
    [NAN, 1.0, 1.0, -1.0, 5.0, 4.0, 3.0, 2.0],
]
MANY = (torch.arange(120.0) * 7 % 31).reshape(2, 60).masked_fill(torch.arange(120).reshape(2, 60) % 5 == 0, NAN)
LONG = (torch.arange(160.0) * 7 % 31).reshape(2, 80).masked_fill(torch.arange(160).reshape(2, 80) % 3 == 0, NAN)
BYTES = torch.tensor([255, 7, 128], dtype=torch.uint8)
LARGE = torch.tensor([[2**53 + 1, 5, -1], [7, 2**60 + 3, 2], [-(2**62), 3, 2**57 + 1]])
MASK, OTHER_MASK = torch.tensor([True, False, True]), torch.tensor([False, True, False, True, True])


def ramp(*sizes):
    return torch.arange(float(math.prod(sizes))).reshape(sizes) * 7 % 11 / 3


def written(x, *index, value):
    x = x.clone()
    x[index] = value
    return x


def sorted_both_ways(x):
    return *torch.sort(x, 1), *torch.sort(x, 1, descending=True), *torch.sort(x, dim=0, stable=True)


def extremes(dtype):
    # Torch's numbers beyond float16's are infinite.
    return torch.tensor(EXTREMES, dtype=torch.float64).to(dtype)


SIGNED = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-30]
HEIGHTS, WIDTHS = torch.meshgrid(torch.tensor(SIGNED), torch.tensor(SIGNED), indexing="ij")


def attention(query, key, value, mask):
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)


# What is called, with what, and with what else: dimensions that differ are dynamic.
CASES = {
    "place of the largest": (lambda x: x.argmax(keepdim=True), (ramp(3, 4),), (ramp(5, 6),)),
    "place of the smallest": (lambda x: x.argmin(keepdim=True), (ramp(3, 4),), (ramp(2, 7),)),
    "cross product": (torch.cross, (ramp(5, 3, 2, 3), ramp(5, 3, 2, 3) ** 2), (ramp(4, 3, 2, 3), ramp(4, 3, 2, 3) + 1)),
    "bytes by a number": (lambda x: [x >> n for n in (1, 7, 8)] + [x << n for n in (0, 1, 9)], (BYTES,), (BYTES[:2],)),
    "bytes by bytes": (
        lambda x, y: (x >> y, x << y, torch.bitwise_right_shift(x, y), torch.bitwise_left_shift(3, y)),
        (BYTES, torch.tensor([1, 0, 9], dtype=torch.uint8)),
        (BYTES[:2], torch.tensor([1, 8], dtype=torch.uint8)),
    ),
    "bytes by integers": (lambda x, y: (x >> y, x << y), (BYTES, torch.tensor([1, 0, 9])), None),
    "sorted float16": (sorted_both_ways, (extremes(torch.float16),), None),
    "sorted float32": (sorted_both_ways, (extremes(torch.float32),), (extremes(torch.float32)[:, 1:],)),
    "sorted float64": (sorted_both_ways, (extremes(torch.float64),), (extremes(torch.float64)[:2, :6],)),
    "sorted bfloat16": (lambda x: x.sort(1)[1], (extremes(torch.bfloat16),), None),
    "sorted booleans": (sorted_both_ways, (ramp(3, 4) > 2,), (ramp(2, 5) > 2,)),
    "sorted number": (torch.sort, (torch.tensor(NAN),), None),
    "many sorted": (lambda x: (x.msort(), x.argsort(dim=-1, stable=True)), (MANY,), (LONG,)),
    "first ones": (
        lambda x: [x.topk(4, largest=way)[0] for way in (True, False)] + [x.topk(x.shape[1] // 2)[0]],
        (MANY,),
        (LONG,),
    ),
    "first doubles": (lambda x: x.topk(3, 0, False)[0], (extremes(torch.float64),), None),
    "quantiles without NaN": (lambda x: x.nanquantile(torch.tensor([0.3, 0.9]), dim=1), (MANY,), (LONG,)),
    "quantiles with NaN": (lambda x: x.quantile(0.3, dim=1), (MANY,), (LONG,)),
    "diagonal of booleans": (lambda x: torch.einsum("ii->i", x), (ramp(3, 3) > 2,), None),
    "product of booleans": (lambda x, y: torch.einsum("ij,ij->ij", x, y), (ramp(3, 4) > 2, ramp(3, 4) > 1), None),
    "count of booleans": (lambda x: torch.einsum("ij->i", x), (ramp(3, 4) > 2,), (ramp(5, 4) > 2,)),
    "sums of int32": (lambda x: torch.einsum("ij->j", x), (ramp(3, 4).int(),), None),
    "products of int8": (
        lambda x, y: torch.einsum("ij,jk", x, y),
        ((ramp(3, 4) * 30).to(torch.int8), (ramp(4, 2) * 30).to(torch.int8)),
        None,
    ),
    "ellipses of several lengths": (
        lambda x, y: (torch.einsum("i...,...i->...", x, y), torch.einsum("i..., ...j", x, y)),
        (ramp(3, 4), ramp(2, 4, 3)),
        (ramp(3, 6), ramp(5, 6, 3)),
    ),
    "squeezed not at all": (lambda x: (x.squeeze(2), x.squeeze(-1)), (ramp(3, 4, 5),), (ramp(3, 2, 7),)),
    "squeezed in part": (lambda x: (x.squeeze((0, 2)), x.squeeze((-1, 1))), (ramp(1, 4, 5),), (ramp(1, 4, 6),)),
    "columns under a mask": (
        lambda x, m: written(x, slice(None), m, value=-1.0),
        (ramp(4, 3), MASK),
        (ramp(2, 5), OTHER_MASK),
    ),
    "inner rows under a mask": (
        lambda x, m, y: written(x, slice(None), m, value=y),
        (ramp(2, 3, 4), MASK, ramp(2, 4)),
        (ramp(2, 5, 4), OTHER_MASK, ramp(3, 4)),
    ),
    "a mask beside an index": (
        lambda x, m, i: written(x, m, i, value=-1.0),
        (ramp(3, 4), MASK, torch.tensor([0, 3])),
        (ramp(5, 4), OTHER_MASK, torch.tensor([1, 3, 2])),
    ),
    "a mask of two dimensions inside": (
        lambda x, m: written(x, slice(None), m, value=-1.0),
        (ramp(2, 3, 4), ramp(3, 4) > 1),
        (ramp(2, 5, 4), ramp(5, 4) > 2),
    ),
    "a mask of bytes": (lambda x, m, y: torch.index_put(x, (m,), y), (ramp(3, 4), MASK.byte(), ramp(2, 4)), None),
    "scattered": (
        lambda x, i, y: (x.scatter(1, i, y), x.scatter_add(1, i, y), x.scatter_reduce(1, i, y, "amax")),
        (ramp(3, 4), torch.tensor([[0, 1], [3, 2]]), ramp(3, 5)),
        (ramp(4, 4), torch.tensor([[3, 0, 2], [3, 0, 1], [1, 2, 3]]), ramp(6, 7)),
    ),
    "expanded by data": (
        lambda x, y: x.expand(tuple(y.tolist())),
        (ramp(1, 4), torch.tensor([3, -1])),
        (ramp(1, 4), torch.tensor([5, 4])),
    ),
    "long integers divided": (
        lambda x, y: [torch.div(x, item, rounding_mode=mode) for item in (y, 10) for mode in ("floor", "trunc")],
        (torch.tensor([123456789, -123456789, 2**62 + 1]), torch.tensor([10, 10, -3], dtype=torch.int32)),
        (torch.tensor([-(2**24) - 1]), torch.tensor([2], dtype=torch.int32)),
    ),
    "angles of points": (torch.atan2, (HEIGHTS, WIDTHS), (HEIGHTS[1:], WIDTHS[1:])),
    "precise angles": (torch.atan2, (HEIGHTS.double() / 3, WIDTHS.double()), None),
    "angles of integers": (torch.atan2, (torch.tensor([0, 3]), torch.tensor([-2, 0])), None),
    "attention under a mask": (
        attention,
        (ramp(2, 4, 3, 8), ramp(2, 2, 5, 8), ramp(2, 2, 5, 8) ** 2, written(ramp(3, 5) > 1.8, 1, value=False)),
        (ramp(3, 4, 3, 8), ramp(3, 2, 6, 8), ramp(3, 2, 6, 8) ** 2, written(ramp(3, 6) > 1.8, 0, value=False)),
    ),
    "attention under -inf": (
        attention,
        (
            ramp(2, 1, 3, 8),
            ramp(2, 1, 5, 8),
            ramp(2, 1, 5, 8),
            written(torch.full((3, 5), -INF).triu(1), 1, value=-INF),
        ),
        None,
    ),
    "numbers before integers": (
        lambda x: (1.5 - x, 2.5 // x, torch.mul(0.5, x), torch.add(0.5, x, alpha=2), 5 // x.float()),
        (torch.tensor([3, -5, 1]),),
        (torch.tensor([2, 4]),),
    ),
    "stacked numbers of several types": (
        lambda x: (torch.stack([x.int(), x], -1), torch.stack([x.double(), x.half()])),
        (ramp(3, 4),),
        (ramp(5, 4),),
    ),
    "strides of columns": (
        lambda x: (x.t().as_strided((3, 2), (1, 2)), (x * 2).t().reshape(2, -1, 3).as_strided((4,), (3,))),
        (ramp(3, 4),),
        (ramp(3, 6),),
    ),
    "strides of parts": (
        lambda x: (
            *(x[:, 1:].as_strided((2, 2), (2, 1)), x[1:].as_strided((2,), (2,), 1), x[1].as_strided((2,), (1,))),
            *(x.split(1)[1].expand(3, -1).as_strided((3,), (1,)), x.as_strided((2, 4), (1, 2)).as_strided((3,), (1,))),
        ),
        (ramp(3, 4),),
        (ramp(3, 4) + 1,),
    ),
    "diagonals beside infinity": (
        lambda x, n: (
            *(x.diagonal(), x.diagonal(1), x.diagonal(-2), x.diag(), x.trace(), torch.einsum("ii->i", x @ x.T)),
            *(n.diagonal(), n.diag(1), n.trace(), (n > 5).diagonal(), x.half()[None].diagonal(0, -1, 1)),
        ),
        (extremes(torch.float32)[:, 1:5], LARGE),
        (extremes(torch.float32)[:2, 1:4], LARGE[:2, :2]),
    ),
    "bounds of infinity": (
        lambda x: (x.clamp(max=2), x.clamp(min=0.5), x.clamp(-1, 1), x.half().clamp_min(0), x.clamp_max(x.shape[1])),
        (extremes(torch.float32),),
        (extremes(torch.float32)[:, 1:],),
    ),
    "powers of integers": (
        lambda x, e: (
            *(x**5, x.int() ** 5, x.to(torch.int8) ** 3, x.byte() ** 2, x**0, x**e, x.int() ** e, 3**e, 2.5**e, x**0.5),
            *((x > 0) ** 2, x ** x.shape[0], x.to(torch.int8) ** x.shape[0], x.half() ** x.shape[0], x.float() ** e),
            *(torch.tensor(2.0) ** torch.tensor(0.5, dtype=torch.float64), torch.tensor([-INF, -0.0]) ** 0.5),
            torch.tensor([-INF, -0.0, 4.0]) ** -0.5,
            *((x.half() * -(2**31)) ** 0.1, (x.half() * 2**31) ** -1.5),
        ),
        (torch.tensor([77, -78, 1, -1, 2**20 + 1]), torch.tensor([5, 3, -2, -3, 63])),
        (torch.tensor([2**40 + 1, 0]), torch.tensor([3, 2])),
    ),
    "numbers and sizes": (
        lambda x, b: (
            *(x % x.shape[0], x.shape[0] * b, b + x.shape[0], x.to(torch.int8) * x.shape[0], x.float() % x.shape[0]),
            *(
                x > x.shape[0],
                x.float() == x.shape[0],
                torch.fmod(x, x.shape[0]),
                x.half() - x.shape[0],
            ),
        ),
        (torch.tensor([-3, 101, 7]), MASK),
        (torch.tensor([-3, 101, 7, 4, -9]), OTHER_MASK),
    ),
    "products and sums beyond 53 bits": (
        lambda x: (
            x.sum(),
            x[0].sum(),
            x.sum(0),
            x.sum((0, 1), keepdim=True),
            x[:2, :2].sum(),
            x.prod(),
            x.prod(1, keepdim=True),
            x.int().prod(-1),
        ),
        (LARGE,),
        (LARGE[:, :2],),
    ),
    "sums of many beyond 53 bits": (lambda x: (x.sum(0), x.sum((0, 1))), (LARGE[:1, :1].expand(5, 6),), None),
    "averages of windows": (
        lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (3, 2)),
        (ramp(1, 2, 5, 7),),
        (ramp(1, 2, 6, 9),),
    ),
    "quotients of float16": (
        lambda x: (x // 0.1, x % 0.1, x.nansum(0) // -3, x.nansum() // 0.1),
        (torch.linspace(0, 5, 41).half(),),
        None,
    ),
    "remainders and quotients of floats": (
        lambda x, y: (
            x % y,
            torch.div(x, y, rounding_mode="floor"),
            x // 0.1,
            torch.remainder(x, 0.1),
            torch.logit(x, 0.1),
        ),
        (torch.tensor([1e8, 7.0, NAN, 0.99]), torch.tensor([0.3, 0.1, 0.1, 0.33])),
        None,
    ),
    "far from 0": (
        lambda x: (torch.nn.functional.logsigmoid(x), torch.logaddexp(x, x + 1), torch.logaddexp2(x, x)),
        (torch.tensor([-200.0, 200.0, -0.0]),),
        None,
    ),
    "truth of nothing": (
        lambda x: (x.any(), x.any(0), x.any((0, 1)), x.all(), x[:0].any(0), x[:0].any(), x.half().any(1, keepdim=True)),
        (ramp(3, 4),),
        (torch.zeros(2, 4),),
    ),
    "distinct numbers": (
        lambda x, y: (
            *torch.unique(x.nan_to_num(), return_inverse=True, return_counts=True),
            *(x.half().unique(), y.unique(), y[:0].unique(), torch.unique(x, return_counts=True)[1]),
        ),
        (extremes(torch.float32), extremes(torch.float64)),
        (extremes(torch.float32)[:, 1:], extremes(torch.float64)),
    ),
    "repeated never": (
        lambda x: (x.repeat_interleave(0), x.repeat_interleave(0, 1), x.repeat_interleave(2, 0)),
        (ramp(3, 4),),
        (ramp(5, 4),),
    ),
    "scattered nowhere": (
        lambda x: (
            *(write(1, torch.zeros(0, 4, dtype=torch.int64), x) for write in (x.scatter, x.scatter_add)),
            *(x.scatter(1, torch.zeros(0, dtype=torch.int64), 7), x.gather(1, torch.zeros(0, dtype=torch.int64))),
        ),
        (ramp(3, 4),),
        (ramp(5, 4),),
    ),
    "scattered to places that are scalars": (
        lambda x, i: (
            *(x.scatter(0, i, 9.0), x.scatter(0, i, x), x.scatter_add(0, i, x), x.scatter_reduce(0, i, x, "amax")),
            *(x[0].scatter(0, i * 0, 9.0), x[0].scatter_add(0, i * 0, x[1]), x.half().scatter_add(0, i, x.half())),
        ),
        (ramp(3), torch.tensor(1)),
        (ramp(5), torch.tensor(4)),
    ),
    "joined tensors of several types": (
        lambda x, n: [
            join([x, n]) for join in (torch.hstack, torch.vstack, torch.dstack, torch.column_stack, torch.cat)
        ],
        (ramp(3), torch.tensor([3, -5, 1])),
        (ramp(5), torch.tensor([2, 4, 1, 1, 0])),
    ),
    "signs of NaN": (lambda x: (x.sign(), x.sgn(), x.half().sign()), (extremes(torch.float32),), None),
    "numbers near 0": (
        lambda x: (
            *(torch.expm1(x), torch.log1p(x), torch.log1p(x.half()), torch.expm1(x.double()) / x),
            *(torch.expm1(x[:4]) / x[:4], torch.log1p(x[:4]) / x[:4]),
        ),
        (torch.tensor([1e-8, -1e-8, 1e-30, -0.5, 0.0, -0.0, 0.7, 80.0, INF, NAN, -1.0]),),
        (torch.tensor([1e-3, -1e-3]),),
    ),
    "doubles": (
        lambda x: (
            *(torch.softmax(x.float(), 1, dtype=torch.float64), torch.log_softmax(x.half(), 1, dtype=torch.float64)),
            *(x.half().mean(0, dtype=torch.float64), x.int().mean(dtype=torch.float64)),
            *(torch.celu(x, 0.7), torch.sinc(x), torch.nn.functional.gelu(x, approximate="tanh")),
            *(torch.addcmul(x, x, x, value=0.1), torch.addcdiv(x.half(), x, x + 9, value=0.1)),
            *(torch.arange(0, 1, 0.1, dtype=torch.float64), torch.addmm(x, x, x[:1].mT @ x[:1], beta=0.1, alpha=0.7)),
            torch.nn.functional.layer_norm(x, x.shape[1:], eps=1e-3),
            torch.nn.functional.layer_norm(x, x.shape[1:], x[0], x[1]),
        ),
        (ramp(3, 4).double() - 1,),
        (ramp(5, 4).double() - 1,),
    ),
    "finite float64": (
        lambda x: (x.nan_to_num(), x.isinf(), x.half().nan_to_num(), x.nan_to_num(0), x.isnan().int().nan_to_num()),
        (torch.tensor([1e120, -1e120, NAN, INF, -INF, 1.5], dtype=torch.float64),),
        None,
    ),
    "float64 functions": (
        lambda x: (
            *(x.tan(), x.atan(), x.sinh(), x.cosh(), x.asinh(), x.acos(), x.asin(), x.atanh()),
            *((x * 1e-9).sinh() * 1e9, (x * 1e-9).atanh() * 1e9, (x * 1e-9).asinh() * 1e9),
            *[getattr(torch.nn.functional, name)(x) for name in ("elu", "selu", "mish", "hardsigmoid", "hardswish")],
            *(torch.nn.functional.elu(x, 0.3), torch.nn.functional.leaky_relu(x, 0.1), (x * 700).cosh()),
            *(torch.nn.functional.softplus(x), torch.nn.functional.softplus(x, 0.3, 1)),
            torch.nn.functional.hardtanh(x, -0.3, 0.4),
            torch.nn.functional.glu(torch.stack([x, torch.full_like(x, -104)]), 0),
        ),
        (torch.tensor([-7.5, -1.01, -0.3, -0.0, 0.0, 1e-12, 0.5, 1.0, 4.2, INF, -INF, NAN]).double(),),
        (torch.tensor([0.1, -2.0]).double(),),
    ),
    "numbers beyond float16": (
        lambda x: (x * 1e5, x / 1e5, 2.0**16 * x, x * 1e30, x * INF, x / 1e-8, (x * 10) * 1e-6, (-x) ** 0.5),
        (torch.tensor([0.0, -0.0, 0.01, -3.0, INF]).half(),),
        (torch.tensor([1.0]).half(),),
    ),
    "scalars beyond float16": (
        lambda x, y: (x * y, y * x, x / y, y / x, x * torch.tensor(1e5), x / torch.tensor(2**40 + 1), x - y),
        (torch.tensor([1.0, 0.0, -1e-3, INF, NAN]).half(), torch.tensor(1e5)),
        (torch.tensor([1.0]).half(), torch.tensor(1e-9)),
    ),
    "floors by scalars beyond float16": (
        lambda x, y: (x // y, torch.div(x, y, rounding_mode="floor"), y // x, x // torch.tensor(-1e-30)),
        (torch.tensor([1.0, 0.0, -1e-3, INF, NAN, -7.0]).half(), torch.tensor(1e-9)),
        (torch.tensor([1.0, -0.0]).half(), torch.tensor(0.1)),
    ),
    "float16 compared": (
        lambda x, y, z: (
            *(x < y, x <= y, x == y, x != y, y >= x, y > x, x == 0.1, x < 0.1, x >= 0.1, x == 1e5, x < 70000),
            *(x == torch.tensor(0.1), x == torch.tensor(1e5), x > z, z.bfloat16() == 0.1, x < z.double()),
            *(y.half() == 2**31 - 1, y.half() == 1e5, y.half() < 2**31, y.half() == y),
            *(x > 0.09997, x <= 0.09997, x != 0.1),
        ),
        (torch.tensor([0.1, INF, -3.0, NAN]).half(), torch.tensor(1e5), torch.tensor([0.1, INF, NAN, 2.0])),
        (torch.tensor([0.1]).half(), torch.tensor(0.1), torch.tensor([0.1])),
    ),
    "other names of operators": (
        lambda x, n: (
            *(torch.divide(n, x), torch.true_divide(n, 2), torch.multiply(x, n > 1), torch.subtract(n, 0.5, alpha=2)),
            *(torch.greater(n, x), torch.less_equal(n, x), torch.greater_equal(n, x), torch.less(n, x)),
            *(torch.true_divide(n, x), torch.concat([n, x]), torch.concatenate([n, x])),
            *(torch.special.softmax(x, 0, dtype=torch.float64), torch.special.log_softmax(x, 0, dtype=torch.float64)),
            *(torch.special.expm1(x.double() * 1e-9) * 1e9, torch.special.sinc(x.double())),
        ),
        (ramp(3), torch.tensor([3, -5, 1])),
        (ramp(5), torch.tensor([2, 4, 1, 1, 0])),
    ),
    "mixtures of infinities": (
        lambda x, y: (
            *(torch.lerp(x, y, weight) for weight in (-1.5, -0.5, 0.3, 0.5, 2.0)),
            *(torch.lerp(x, y, y), torch.lerp(x.double(), y.double(), -0.7), torch.lerp(x.half(), y.half(), -0.7)),
        ),
        (torch.tensor([1.0, INF, -INF, 2.0, INF, 1 / 3]), torch.tensor([INF, 1.0, 1.0, -INF, -INF, -0.7])),
        (torch.tensor([1.0]), torch.tensor([2.0])),
    ),
    "logarithms of shares beside infinity": (
        lambda x: (
            *(x.log_softmax(0), x.softmax(1), x.double().log_softmax(1), x.log_softmax(-1, dtype=torch.float64)),
            *(x[0, 0].log_softmax(0, dtype=torch.float64), x[-1, 1].double().log_softmax(0)),
        ),
        (torch.tensor([[1.0, INF, 3.0], [1.0, 2.0, 3.0], [-INF, 2.0, 3.0], [-INF, -INF, -INF], [NAN, 1.0, 2.0]]),),
        (torch.tensor([[1.0, INF], [1.0, 2.0]]),),
    ),
    "small shares of float64": (
        lambda x: (torch.sigmoid(x) / x.exp(), torch.nn.functional.silu(x) / x.exp()),
        (torch.tensor([-80.0, -40.0, -20.0, 0.5, 20.0]).double(),),
        (torch.tensor([-40.0, 2.0]).double(),),
    ),
    "nothing repeated, normalized and multiplied": (
        lambda x: (
            *(x.repeat_interleave(2, 0), x.repeat_interleave(2, 1), x.repeat_interleave(3)),
            *(x.T.repeat_interleave(2, 0), x.T.repeat_interleave(2, 1)),
            *(torch.nn.functional.layer_norm(x.T, (0,)), torch.nn.functional.layer_norm(x.T.half(), (0,))),
            *(x.int().prod(0), x.long().prod(), (x > 0).prod(1, keepdim=True), x.prod(0)),
        ),
        (torch.zeros(0, 3),),
        None,
    ),
    "a scalar turned over": (lambda x: (x.flip(()), x.flip(0)), (torch.tensor(3.0),), None),
    "booleans": (
        lambda x, y: (x + y, x.double().nonzero()),
        (MASK, MASK.flip(0)),
        (OTHER_MASK, OTHER_MASK.flip(0)),
    ),
    "deviations of nothing": (
        lambda x, y: (
            *(x.var(0), x.std(), torch.var_mean(x, 0, correction=0)[0], y.std(0), y.var(correction=0)),
            *(torch.nn.functional.mse_loss(x, x), torch.nn.functional.mse_loss(x, x, reduction="sum")),
        ),
        (torch.zeros(0, 3), torch.tensor(2.0)),
        None,
    ),
    "bounds of two types": (
        lambda x, n: (x.clamp(-1, 0.5), x.clamp(0.5, 7), n.clamp(0.5, 3), n.clamp(1, 2.5)),
        (ramp(3, 4) - 1, torch.tensor([3, -5, 1])),
        (ramp(5, 4) - 1, torch.tensor([3, 2])),
    ),
    "jumps and logarithms of NaN": (
        lambda x: (torch.heaviside(x, x + 2), torch.xlogy(x * 0, x), torch.xlogy(x, 3), torch.xlogy(0, x)),
        (torch.tensor([NAN, 0.0, -0.0, 2.0, -INF]),),
        (torch.tensor([1.0]),),
    ),
    "more dimensions for several types": (
        lambda x, n: (*torch.atleast_1d(x, n), *torch.atleast_2d(n, x[0]), *torch.atleast_3d(x, n, n[0])),
        (ramp(2, 3), torch.tensor([1, 2])),
        (ramp(4, 3), torch.tensor([3, 2, 1])),
    ),
    "repeats whose sum is given": (
        lambda x, n: (
            x.repeat_interleave(n, 0, output_size=3),
            torch.repeat_interleave(n, output_size=3),
            x.repeat_interleave(2, 1, output_size=2 * x.shape[1]),
        ),
        (ramp(2, 3), torch.tensor([2, 1])),
        (ramp(2, 5), torch.tensor([0, 3])),
    ),
    "blocks of several types": (
        lambda x, n: (
            torch.block_diag(x[0, 0].double(), x, n),
            torch.block_diag(n[0], n, n),
            torch.block_diag(x[:0], x),
        ),
        (ramp(3, 4), torch.tensor([3, -5, 1])),
        (ramp(5, 4), torch.tensor([3, 2])),
    ),
    "sums of products of several types": (
        lambda x, n: torch.einsum("...i,...i->...", n, x),
        (ramp(4), torch.ones(3, 1, dtype=torch.int8)),
        (ramp(5), torch.ones(3, 1, dtype=torch.int8)),
    ),
    "directions of infinite vectors": (
        lambda x: torch.nn.functional.cosine_similarity(x, x + 1, -1),
        (torch.tensor([[1.0, INF], [1.0, 2.0]]),),
        None,
    ),
    "bags of embeddings": (
        lambda table, indices, begins: (
            [
                torch.nn.functional.embedding_bag(indices, table, begins, mode=mode, include_last_offset=last, **given)
                for mode, given in (
                    ("sum", {}),
                    ("sum", {"per_sample_weights": table[indices, 0]}),
                    ("mean", {"padding_idx": 1}),
                    ("mean", {}),
                    ("max", {"padding_idx": -1}),
                )
                for last in (False, True)
            ]
            + [torch.embedding_bag(table, indices, begins)[0]]
        ),
        (ramp(6, 3).double(), torch.tensor([1, 0, 2, 1, 5]), torch.tensor([0, 2, 2, 5])),
        (ramp(6, 3).double() + 1, torch.tensor([1, 5, 3, 1, 1, 4]), torch.tensor([0, 3, 5, 6])),
    ),
    "bags of NaN": (
        lambda table, indices, begins: [
            torch.nn.functional.embedding_bag(indices, table, begins, mode=mode, padding_idx=padding)
            for mode in ("sum", "mean", "max")
            for padding in (None, 0, 1)
        ],
        (
            torch.tensor([[NAN, 1.0, -INF], [2.0, NAN, INF], [-1.0, 3.0, NAN], [NAN, -INF, NAN]]),
            torch.tensor([0, 1, 2, 2, 1, 0, 3, 3, 1, 0, 2, 1]),
            torch.tensor([0, 3, 6, 6, 8, 11]),
        ),
        None,
    ),
    "cross entropy of doubles": (
        lambda x, target: [
            torch.nn.functional.cross_entropy(x, target, reduction=reduction) for reduction in ("none", "mean")
        ],
        (torch.tensor([[1.0, 2.0, INF], [1.0, -INF, 1.0], [0.1, 0.2, 0.3]]).double(), torch.tensor([0, 1, 2])),
        None,
    ),
    "cross entropy of no classes": (
        lambda *xs: [
            torch.nn.functional.cross_entropy(x, x, reduction=reduction)
            for x in xs
            for reduction in ("none", "mean", "sum")
        ],
        (torch.zeros(0), torch.zeros(3, 0).double(), torch.zeros(2, 0, 4)),
        None,
    ),
    "losses of two types": (
        lambda x, y: [
            loss(a, b, reduction=reduction)
            for loss in (torch.nn.functional.huber_loss, torch.nn.functional.soft_margin_loss)
            for a, b in ((x, y), (y, x))
            for reduction in ("none", "mean")
        ],
        (ramp(3, 4) - 1, ramp(3, 4).double() / 3),
        (ramp(5, 4) - 1, ramp(5, 4).double() / 3),
    ),
    "targets that end": (
        lambda x, target: tuple(
            torch.nn.functional.multilabel_margin_loss(row, places, reduction=reduction)
            for reduction in ("none", "mean", "sum")
            for row, places in (
                (x, target),
                (x[0], target[0]),
                (x[0, 0], target[0, 0] * 0),
                (x[0, 0], target[0, 0] * 0 - 1),
            )
            if (reduction, row.dim()) != ("none", 1)  # torch captures a vector in place of this number
        ),
        (
            torch.tensor([[0.1, -2.0, 0.3, 5.0], [NAN, 1.5, -0.5, 0.2], [INF, 1.0, -INF, 2.0]]),
            torch.tensor([[3, -1, 1, -1], [2, 1, -1, 0], [1, 1, 3, 2]]),
        ),
        (ramp(2, 4), torch.tensor([[-1, 2, 3, 0], [0, 1, 2, 3]])),
    ),
    "LSTM with a projection": (torch.nn.LSTM(5, 4, proj_size=3), (ramp(4, 2, 5),), (ramp(4, 3, 5),)),
    "LSTM with projections": (
        torch.nn.LSTM(5, 4, 2, bias=False, batch_first=True, bidirectional=True, proj_size=2),
        (ramp(2, 4, 5),),
        (ramp(3, 4, 5),),
    ),
}


# Of complex numbers; a Fourier layer is the last one.


def fourier(x, weights):
    found = torch.fft.rfft(x)
    modes = torch.zeros(x.shape[0], 3, found.shape[2], dtype=torch.complex64)
    modes[:, :, :3] = torch.einsum("bix,iox->box", found[:, :, :3], torch.view_as_complex(weights))
    return torch.fft.irfft(modes, n=8)


def zeros_and_others(x):
    z = torch.view_as_complex(x)
    return (
        *(torch.zeros(2, dtype=torch.complex64), torch.ones(2, 1, dtype=torch.complex128), torch.full((2,), 2 - 1j)),
        *(z.new_zeros(3), z.new_ones(3), z.new_full((1, 2), 1j), x.new_zeros(2, dtype=torch.complex64)),
        *(torch.zeros_like(z), torch.ones_like(x, dtype=torch.complex128), torch.full_like(z, 3)),
    )


def rows_of_zeros(x):
    z = torch.view_as_complex(x)
    zeros = torch.zeros(z.shape[0], 3, dtype=torch.complex64)
    zeros[:, 1] = z[:, 0]
    zeros[:, -1:] = z[:, 1:2]
    return zeros


COMPLEX_CASES = {
    "constants": (zeros_and_others, (ramp(3, 4, 2),), (ramp(5, 4, 2),)),
    "parts of zeros": (rows_of_zeros, (ramp(3, 4, 2),), (ramp(5, 4, 2),)),
    "sums of products": (
        lambda x, y: [
            torch.einsum(equation, torch.view_as_complex(x), *rest)
            for equation, *rest in (
                ("...j->...",),
                ("ij, jk", torch.view_as_complex(y)),
                ("ij,jk,jk->ki", torch.view_as_complex(y), torch.view_as_complex(y)),
            )
        ],
        (ramp(3, 4, 2), ramp(4, 2, 2)),
        (ramp(5, 4, 2), ramp(4, 2, 2)),
    ),
    "angles": (
        lambda x: torch.view_as_complex(x).angle(),
        (torch.stack([WIDTHS, HEIGHTS], -1),),
        (torch.stack([WIDTHS, HEIGHTS], -1)[1:],),
    ),
    "powers of infinity": (lambda x: torch.view_as_complex(x).exp(), (torch.tensor([[-INF, NAN], [-INF, INF]]),), None),
    "sizes of infinity beside NaN": (
        lambda x: (torch.view_as_complex(x).abs(), torch.view_as_complex(x.double()).abs()),
        (torch.tensor([[-INF, NAN], [NAN, INF], [NAN, 1.0], [3.0, 4.0]]),),
        (torch.tensor([[3.0, 4.0]]),),
    ),
    "mean of no complex numbers": (
        lambda x: (torch.view_as_complex(x).mean(0), torch.view_as_complex(x).mean()),
        (torch.zeros(0, 4, 2),),
        None,
    ),
    "sum of one": (lambda x: (torch.view_as_complex(x).sum(), torch.view_as_complex(x)[0].sum()), (ramp(3, 2),), None),
    "stacks": (
        lambda x: [
            flat(stack([torch.view_as_complex(x), x[..., 0].double(), x[..., 0].int()]))
            for stack in (lambda of: torch.stack(of, -1), torch.stack, torch.vstack, torch.dstack)
        ],
        (ramp(3, 4, 2),),
        (ramp(5, 4, 2),),
    ),
    "times a number": (
        lambda x: (-1 + 2j) * torch.view_as_complex(x).to(torch.complex128),
        (ramp(3, 2),),
        (ramp(4, 2),),
    ),
    "quotients of complex numbers": (
        lambda x, y: (
            torch.view_as_complex(x) / torch.view_as_complex(y),
            torch.addcdiv(torch.view_as_complex(y), torch.view_as_complex(x), torch.view_as_complex(y), value=2),
        ),
        (
            torch.tensor([[1e30, 2e25], [3e-30, -1.0], [1.0, -2.0], [INF, 1.0]]),
            torch.tensor([[1e30, 3e25], [1e-30, 2e30], [0.0, -0.0], [2.0, 1.0]]),
        ),
        (ramp(3, 2), ramp(3, 2) + 1),
    ),
    "reciprocals of complex numbers": (
        lambda x: torch.view_as_complex(x).reciprocal(),
        (torch.tensor([[1e30, 2e25], [3e-30, -1e-35], [0.0, -0.0], [-2.0, 1e20]]),),
        (ramp(3, 2),),
    ),
    "complex numbers and integers": (lambda x: 2j - x, (torch.tensor([3, -5, 1]),), (torch.tensor([2, 4]),)),
    "Fourier layer": (fourier, (ramp(2, 4, 8), ramp(4, 3, 3, 2)), (ramp(5, 4, 8), ramp(4, 3, 3, 2))),
}

# Calls of the same operators that torch's exporter translates correctly.
KEPT = {
    "places": (lambda x: (x.argmax(), x.argmin(1, keepdim=True)), (ramp(3, 4),), (ramp(5, 6),)),
    "cross product": (lambda x: (torch.cross(x, x + 1), torch.cross(x, x + 2, dim=-1)), (ramp(5, 3),), (ramp(4, 3),)),
    "shifted integers": (
        lambda x: (x >> 1, x << 1, torch.bitwise_right_shift(x, x)),
        (torch.tensor([3, -5, 1]),),
        None,
    ),
    "divided": (
        lambda x, n: (n % 2, n // 2, x.div(2, rounding_mode="trunc"), x.logit()),
        (ramp(3), torch.tensor([3, -5, 1])),
        None,
    ),
    "sorted integers": (lambda x: (*x.sort(1), x.topk(2)[0]), (ramp(3, 4).int(),), (ramp(5, 4).int(),)),
    "sum of products": (lambda x, y: torch.einsum("ij,jk->ik", x, y), (ramp(3, 4), ramp(4, 2)), None),
    "squeezed": (lambda x: (x.squeeze(1), x.squeeze()), (ramp(3, 1, 5),), (ramp(2, 1, 5),)),
    "written": (
        lambda x, m, i: (written(x, m, value=0.0), written(x, x > 1, value=2.0), written(x, i, value=0.0)),
        (ramp(3, 4), MASK, torch.tensor([0, 2])),
        (ramp(5, 4), OTHER_MASK, torch.tensor([1, 2, 4])),
    ),
    "scattered": (
        lambda x, i: (x.scatter(1, i, x[:, :2]), x.scatter_add(1, i, x[:, :2])),
        (ramp(3, 4), torch.tensor([[0, 1]] * 3)),
        None,
    ),
    "expanded": (
        lambda x: (x[:1].expand(x.shape[0], -1), x[:1].expand(2, x.shape[0], 4)),
        (ramp(3, 4),),
        (ramp(5, 4),),
    ),
    "zeros": (
        lambda x: (x.new_zeros(2), torch.zeros_like(x), torch.full((x.shape[0],), 2.0)),
        (ramp(3, 4),),
        (ramp(5, 4),),
    ),
    "slices": (lambda x: written(x, slice(1), value=0.0), (ramp(3, 4),), (ramp(5, 4),)),
    "LSTM": (torch.nn.LSTM(5, 4), (ramp(4, 2, 5),), (ramp(4, 3, 5),)),
}


class Calls(torch.nn.Module):
    """Several calls as one model, which is exported in the time of one."""

    def __init__(self, cases):
        super().__init__()
        self.cases = cases
        self.layers = torch.nn.ModuleList(
            function for function, *_ in cases.values() if isinstance(function, torch.nn.Module)
        )

    def forward(self, *args):
        rest = iter(args)
        return [flat(function(*(next(rest) for _ in given))) for function, given, _ in self.cases.values()]


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [leaf for item in result for leaf in flat(item)]


def given(cases, index):
    return tuple(arg.clone() for case in cases.values() for arg in case[index] or case[1])


def shapes(cases):
    """Dynamic where the other arguments have other sizes."""
    auto = torch.export.Dim.AUTO
    pairs = zip(given(cases, 1), given(cases, 2), strict=True)
    sizes = [zip(one.shape, other.shape, strict=True) for one, other in pairs]
    return (tuple({dim: auto for dim, (one, other) in enumerate(item) if one != other} for item in sizes),)


def exported(cases, *, dynamic=False, **arguments):
    arguments = {"dynamic_shapes": shapes(cases) if dynamic else None, "verbose": False} | arguments
    with torch.no_grad():
        return exporters.export(Calls(cases).eval(), given(cases, 1), **arguments)


def check(cases, program, index):
    """Compare with torch, call by call."""
    session = pyops.InferenceSession(program)
    arrays = map(as_onnx_array, given(cases, index))
    actual = iter(session.run(None, dict(zip([item.name for item in session.get_inputs()], arrays, strict=True))))
    with torch.no_grad():
        results = Calls(cases)(*given(cases, index))
    for name, expected in zip(cases, results, strict=True):
        for leaf in expected:
            wanted, found = as_onnx_array(torch.view_as_real(leaf) if leaf.is_complex() else leaf), next(actual)
            assert (name, found.dtype, found.shape) == (name, wanted.dtype, wanted.shape)
            rtol, atol = tolerance(wanted.dtype)
            np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, err_msg=name)


def tolerance(dtype):
    """Return the relative and the absolute tolerance."""
    if dtype.kind != "f":
        return 0, 0
    return (1e-12, 1e-15) if dtype == np.float64 else (1e-5, 1e-6)


def custom_nodes(program):
    found: list[str] = []
    for graph in onnx_graphs(program.model_proto.graph):
        found += [f"{node.domain}::{node.op_type}" for node in graph.node if node.domain]
    return found


def onnx_graphs(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from onnx_graphs(attribute.g)


@functools.cache
def program(*, are_complex, dynamic):
    return exported(COMPLEX_CASES if are_complex else CASES, dynamic=dynamic, fallback=are_complex)


EXHAUSTIVE = pytest.mark.exhaustive
# An export of all of them takes seconds: the quick tests have them at other sizes alone, and otherwise only the complex
# ones, which are fewer.
BOTH = pytest.mark.parametrize("are_complex", [pytest.param(False, marks=EXHAUSTIVE), True])


@BOTH
def test_they_compute_what_torch_does(are_complex):
    cases = COMPLEX_CASES if are_complex else CASES
    check(cases, program(are_complex=are_complex, dynamic=False), 1)


@pytest.mark.parametrize("are_complex", [False, True])
def test_they_do_at_other_sizes(are_complex):
    cases = COMPLEX_CASES if are_complex else CASES
    check(cases, program(are_complex=are_complex, dynamic=True), 1)
    check(cases, program(are_complex=are_complex, dynamic=True), 2)


@BOTH
def test_their_nodes_are_onnx_s_own(are_complex):
    assert_nodes_are_onnx_s_own(program(are_complex=are_complex, dynamic=False))


@BOTH
def test_their_nodes_are_onnx_s_own_at_other_sizes(are_complex):
    assert_nodes_are_onnx_s_own(program(are_complex=are_complex, dynamic=True))


def assert_nodes_are_onnx_s_own(found):
    assert not custom_nodes(found)
    assert not found.fallbacks
    onnx.checker.check_model(found.model_proto, full_check=True)


@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=EXHAUSTIVE), True])
def test_what_torch_translates_correctly_is_left_to_it(dynamic):
    ours, torchs = (exported(KEPT, dynamic=dynamic, kernels=kernels) for kernels in (True, False))
    assert [node.op_type for node in ours.model.graph] == [node.op_type for node in torchs.model.graph]
    check(KEPT, ours, 2 if dynamic else 1)


@EXHAUSTIVE
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_explain_says_of_them(dynamic):
    def explained(cases):
        dynamic_shapes = shapes(cases) if dynamic else None
        with torch.no_grad():
            found = exporters.explain(Calls(cases).eval(), given(cases, 1), dynamic_shapes=dynamic_shapes)
        assert not found.problem
        return {(item.operator, item.by) for item in found}

    # Torch's exporter cannot prepare sizes that depend on data together with some of the others.
    by_data = {"expanded by data": CASES["expanded by data"]}
    real = explained(by_data) | explained({name: case for name, case in CASES.items() if name not in by_data})

    kernels = {name for name, by in real if by == "kernel"}
    assert kernels >= {
        *("aten::argmax", "aten::argmin", "aten::cross", "aten::__rshift__.Scalar", "aten::sort", "aten::sort.stable"),
        *("aten::topk", "aten::einsum", "aten::squeeze.dim", "aten::index_put", "aten::scatter_add", "aten::expand"),
        *("aten::scatter.src", "aten::scatter_reduce.two", "aten::lstm.input"),
    }
    assert {by for _, by in real | explained(COMPLEX_CASES)} == {"torch", "kernel"}
    assert {by for _, by in explained(KEPT)} == {"torch"}


@EXHAUSTIVE
def test_verification_leaves_them_alone():
    cases = {name: CASES[name] for name in ("expanded by data", "cross product", "LSTM with a projection")}
    found = exported(cases, fallback="verify")
    assert not found.fallbacks
    check(cases, found, 1)


FAR = [0.0, -0.0, 1.0, -3.0, 0.1, 7.0, 20.0, -18.0, -104.0, 100.0, 90.0, -2000.0, 50000.0, 1e8, 1e10, INF, -INF, NAN]


@pytest.mark.parametrize("dtype", first_quick([torch.float32, torch.float16, torch.float64]))
def test_numbers_far_from_each_other(model, dtype):
    def function(x, y):
        return [
            *(torch.nn.functional.logsigmoid(x), torch.logaddexp(x, y), torch.logaddexp2(x, y), torch.logit(x, 1e-3)),
            torch.nn.functional.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction="none"),
            *(x % y, x % 0.75, torch.div(x, y, rounding_mode="floor"), x // 0.75),
        ]

    # 16 bits have no 1e8.
    x, y = torch.meshgrid(*[torch.tensor(FAR, dtype=torch.float64).to(dtype)] * 2, indexing="ij")
    program = exporters.export(model(function), (x, y), verbose=False)
    assert_nodes_are_onnx_s_own(program)
    rtol = {torch.float16: 1e-3, torch.float32: 1e-5, torch.float64: 1e-13}[dtype]
    for actual, expected in zip(
        pyops.InferenceSession(program).run(None, {"x": x.numpy(), "y": y.numpy()}), function(x, y), strict=True
    ):
        np.testing.assert_allclose(actual, expected.numpy(), rtol=rtol, atol=torch.finfo(dtype).tiny)


def test_a_cross_product_whose_dimension_only_a_run_tells(model):
    module, x, shape = (
        model(lambda x, y: torch.cross(x, y)),
        ramp(3, 3, 5),
        dict.fromkeys(range(3), torch.export.Dim.AUTO),
    )
    arguments = {"dynamic_shapes": (shape, shape), "verbose": False}
    with pytest.raises(
        exporters.ExportError, match=r"the first dimension of size 3, and no fixed size is 3; pass dim="
    ):
        exporters.export(module, (x, x + 1), **arguments)
    program = exporters.export(module, (x, x + 1), fallback=True, **arguments)
    assert [item.operator for item in program.fallbacks] == ["aten::cross"]
    assert exporters.verify(module, (x, x + 1), program).ok


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, y: torch.nn.functional.mish(x), (ramp(3).double() - 1, ramp(3))),
        (lambda x, y: x.clamp(0, 1.5), (ramp(3) - 1, ramp(3))),
        (lambda x, y: torch.nn.functional.huber_loss(x, y, reduction="none"), (ramp(3).half(), ramp(3) + 1)),
        (torch.isin, (torch.tensor([44, 3, -1], dtype=torch.int8), torch.tensor(300))),
        (lambda x, y: torch.linalg.inv(x + y), (ramp(3, 3), 9 * torch.eye(3))),
        (lambda x, y: x / y, (torch.tensor([1e30 + 0j, 1j]), torch.tensor([1e30 + 0j, 2 + 1j]))),
    ],
    ids=[
        "decomposed in float64",
        "bounds of two types",
        "losses of two types",
        "a number among few",
        "inverse",
        "complex",
    ],
)
def test_calls_in_a_branch_are_corrected_too(model, function, inputs):
    def branches(p, x, y):
        return torch.cond(
            p, function, lambda x, y: function(y, x).clone() if x.dtype == y.dtype else function(x, y), (x, y)
        )

    arguments = torch.tensor(True), *inputs
    program = exporters.export(model(branches), arguments, verbose=False)
    for which in (True, False):
        assert exporters.verify(model(branches), (torch.tensor(which), *inputs), program).ok


def test_any_and_all_over_no_dimensions(model):
    module = model(lambda x: (torch.any(x, dim=()), torch.all(x, dim=()), torch.all(x[0, 0], dim=()), x.sum(dim=())))
    x = torch.tensor([[0.0, 2.0, NAN], [0.0, -0.0, INF]])
    assert exporters.verify(module, (x,), exporters.export(module, (x,), verbose=False)).ok


def test_memory_of_transforms_of_dynamic_sizes_is_not_mixed_up(model):
    def function(x):
        return [torch.view_as_real(item) for item in (torch.fft.ifft2(x), torch.fft.rfft2(x), torch.fft.rfft(x, dim=0))]

    dynamic = (dict.fromkeys(range(2), torch.export.Dim.AUTO),)
    program = exporters.export(model(function), (ramp(4, 5),), dynamic_shapes=dynamic, verbose=False)
    assert exporters.verify(model(function), program=program, samples=[(ramp(4, 5),), (ramp(7, 8) / 8,)]).ok


@pytest.mark.parametrize("dims", [(-2, -1), (1,), (2, 1), (0, 1), (0, 2)], ids=str)
@pytest.mark.parametrize("batch", [False, True], ids=["static batch", "dynamic batch"])
def test_transforms_and_their_inverses_at_other_sizes(model, dims, batch):
    def function(x):
        return torch.fft.irfftn(torch.fft.rfftn(x, dim=dims), s=[x.shape[dim] for dim in dims], dim=dims)

    shapes = (dict.fromkeys(range(0 if batch else 1, 3), torch.export.Dim.AUTO),)
    program = exporters.export(model(function), (ramp(2, 4, 3),), dynamic_shapes=shapes, verbose=False)
    samples = [(ramp(2, 4, 3),), (ramp(3 if batch else 2, 5, 6),)]
    assert exporters.verify(model(function), program=program, samples=samples).ok


def test_writes_by_strides_to_columns(model):
    def function(x, y):
        z = x.t().clone()
        z.as_strided((2, 2), (2, 1), 1).fill_(0)
        return z, torch.as_strided_scatter(x.t(), y, (2, 2), (1, 3))

    program = exporters.export(model(function), (ramp(3, 4), ramp(2, 2)), verbose=False)
    assert exporters.verify(model(function), (ramp(3, 4) + 1, ramp(2, 2) + 5), program).ok


def test_strides_of_memory_that_the_model_does_not_have(model):
    refusal = r"shape \[3, 2\] and strides \[4, 2\], which leaves out parts .* \.contiguous\(\) .*test_wrong_trans"
    with pytest.raises(exporters.ExportError, match=refusal):
        exporters.export(model(lambda x: x.as_strided((2, 2), (3, 1))), (ramp(3, 4)[:, ::2],), verbose=False)


def test_transforms_of_doubles_and_of_sizes_known_at_run_time(model):
    def function(x, y):
        z = torch.fft.fft(y, dim=-1)
        spectrum = torch.fft.rfft2(x, dim=(1, 2)) * 2
        return [
            torch.fft.irfft2(spectrum, s=x.shape[1:], dim=(1, 2)),
            *(torch.view_as_real(item) for item in (z, torch.fft.ifft(z, dim=0), torch.fft.rfft(y))),
            torch.fft.irfft(torch.fft.rfft(y), n=y.shape[-1]),
        ]

    dynamic = dict.fromkeys(range(3), torch.export.Dim.DYNAMIC)
    program = exporters.export(model(function), (ramp(2, 6, 7), ramp(7, 5).double()), dynamic_shapes=(dynamic, None))
    samples = [(x, ramp(7, 5).double() - 1) for x in (ramp(2, 6, 7) + 1, ramp(3, 5, 8), ramp(4, 7, 9))]
    report = exporters.verify(
        model(function), program=program, samples=samples, tolerances={torch.float64: (1e-13, 1e-13)}
    )
    assert report.ok, report


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int32])
def test_the_complement_of_erf_keeps_its_digits(model, dtype):
    x = torch.tensor([-1.0, 0.5, 2.0, 3.0]).to(dtype)
    module = model(lambda x: torch.erfc(x))
    tolerances = {torch.float32: (1e-6, 0), torch.float16: (2e-3, 0), torch.float64: (1e-13, 0)}
    report = exporters.verify(module, (x,), exporters.export(module, (x,), verbose=False), tolerances=tolerances)
    assert report.ok, report


@pytest.mark.filterwarnings("ignore:where received a uint8 condition tensor:UserWarning")
@pytest.mark.parametrize("capture", ["export", "auto", "trace"])
def test_a_mask_of_bytes_selects(model, capture):
    module, mask = model(lambda m, x: torch.where(m, x, -x)), torch.tensor([1, 0, 255], dtype=torch.uint8)
    program = exporters.export(module, (mask, ramp(3)), capture=capture, verbose=False)
    assert exporters.verify(module, (mask.flip(0) * 2, ramp(3) + 1), program).ok


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_element_is_among_others_in_the_type_in_which_torch_compares_them(model, dynamic):
    def function(element, few, many):
        of_tensors = [torch.isin(element, few), torch.isin(few, element), torch.isin(element, many)]
        return [*of_tensors, torch.isin(few, 300), torch.isin(many, element), torch.isin(element, few.double())]

    element, few = torch.tensor(300), torch.tensor([44, 1, 2], dtype=torch.int8)  # 300 as int8 is 44
    many = torch.arange(40, 60, dtype=torch.int8)
    shapes = (None, {0: "few"}, {0: "many"}) if dynamic else None
    program = exporters.export(model(function), (element, few, many), dynamic_shapes=shapes, verbose=False)
    assert exporters.verify(model(function), (element, few, many), program).ok
    if dynamic:
        assert exporters.verify(model(function), (element, many, few), program).ok


def test_a_number_is_among_others_in_the_type_in_which_torch_compares_them(model):
    few = torch.tensor([44, 1, 2], dtype=torch.int8)
    module = model(lambda x: [torch.isin(300, x), torch.isin(44, x), torch.isin(0.1, x.half() * 0 + 0.1)])
    assert exporters.verify(module, (few,), exporters.export(module, (few,), verbose=False)).ok


def test_sizes_that_torch_takes_for_equal_and_that_differ_are_refused(model):
    module = model(lambda x: torch.sub(x[-(x.shape[0] - 1) :], x, alpha=-2))
    arguments = {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},), "verbose": False}
    with pytest.raises(exporters.ExportError, match=r"fails where the model does not: .* failed for expression Eq"):
        exporters.export(module, (ramp(2, 4),), **arguments)


def test_numbers_in_float64_models_are_exact(model):
    def function(x):
        return [
            *(x * 0.1, 0.1 - x, x**0.1, torch.pow(0.1, x), x.clamp(0.1), x.add(x, alpha=0.1), torch.full_like(x, 0.1)),
            *(torch.where(x > 0.5, 0.1, x), x.sum() * 0.1, x.lerp(x * 2, 0.1), torch.deg2rad(x), x.log2(), x.log10()),
            *(x.erf(), torch.special.erfc(x), torch.special.ndtr(x), torch.nn.functional.gelu(x)),
        ]

    x = torch.linspace(0.01, 0.99, 30, dtype=torch.float64)
    program = exporters.export(model(function), (x,), verbose=False)
    report = exporters.verify(model(function), (x,), program, tolerances={torch.float64: (1e-14, 1e-15)})
    assert report.ok, report
