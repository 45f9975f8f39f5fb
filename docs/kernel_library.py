"""Script that writes kernel_library.md from the declarations of `pyops.kernels`: ``python docs/kernel_library.py``."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from numpydoc.docscrape import NumpyDocString

from exporters._library.row_table import absent
from exporters._library.translation_order import rows
from pyops._core.ops.op import Op
from pyops._core.schema.signature import Input, Output
from pyops._support.element_types import dtype_name
from pyops.kernels import OPS, complex_values

PAGE = Path(__file__).with_suffix(".md")

INTRODUCTION = """# The kernel library

`pyops.kernels` is a library of ops in the domain `pyops`, written in NumPy with torch's semantics. `exporters.export`
uses them [for operators that torch's exporter does not support](export.md#operators-that-torchs-exporter-lacks). A
model with these ops runs in `pyops.InferenceSession` where torch is not installed. Special functions and matrix
factorizations need SciPy: `pip install "onnx-pyops[kernels]"`.

```python
import numpy as np
from pyops.kernels.triangular_factorization import cholesky_ex

factor, info = cholesky_ex(np.array([[4.0, 2.0], [2.0, 5.0]]))
print(factor)
```

<!-- output -->
```
[[2. 0.]
 [1. 2.]]
```

For sessions that other libraries create, call `pyops.kernels.declare_all()` before `pyops.register_custom_ops`.

Each op is a function in `pyops/kernels`, which you can read as an example. This page is generated from the
declarations, with enough detail to implement an op in another language. All ops have version 1. Shapes are written as
in NumPy; *(...)* is any number of dimensions. ONNX Runtime's custom operators have no complex types, so complex values
are pairs of reals along a last dimension of size 2.

## Supported torch operators

{supported}

## Calls that become ONNX's own nodes

Some of these operators need no op of `pyops`: if the nodes of torch's exporter are wrong, or ONNX Runtime rejects them,
`exporters.export` replaces them with other nodes of ONNX, or with those of the operators that torch decomposes the call
into. Such a model runs in any session. The replacements are:

| call | nodes |
|---|---|
| `sort`, `argsort`, `topk`, `quantile`, `nanquantile` of floats | `TopK` with NaN above infinity; see below. |
| `argmax` and `argmin` over all elements, with `keepdim` | The result is reshaped. |
| `diagonal`, `diag`, `trace` | `GatherND`, so that neighbours of an infinity and long integers stay as they are. |
| `clamp` of floats with one bound | `Max` or `Min`, which keep infinity. |
| `x ** 0.5` and `x ** -0.5` | Roots; of float16, powers in float32, as in torch. |
| powers of integers | Products by squaring, in int64. |
| `sum` of int64, `prod` of integers | Sums of the upper and the lower halves; a `Scan` of products: no digit is lost. |
| `x % n`, `n * x` and similar with a size n | In the type that torch computes in. |
| `any` over a size of 0 | False. |
| `any` and `all` over no dimensions (`dim=()`) | Each element as a boolean. |
| `unique` of floats | Each NaN is distinct. |
| `block_diag` of several types | The type that torch computes in. |
| `repeat_interleave(n, output_size=...)` | The same nodes as without it. |
| `rfft` and others of a dynamic size | The same nodes; the model says how many frequencies there are. |
| `repeat_interleave(0)`, and `scatter` and `gather` by an empty index | Nothing, and the tensor as it was. |
| `scatter` to a scalar, or by one | The same nodes on vectors of one element. |
| `x ** 0.1` of float16, and other powers that are no integers | In float32, cast back. |
| `hstack`, `vstack`, `dstack`, `column_stack` of several types | `Cast` to the type that torch computes in. |
| `sign` of NaN | 0, as in torch. |
| `expm1`, `log1p` | Correct digits near 0. |
| `softmax`, `log_softmax` and `mean` with a dtype | The argument is cast before, not the result. |
| `sinc`, `gelu(approximate="tanh")`, `layer_norm`, `arange` in float64 | In float64. |
| inverse and hyperbolic functions, `tan`, `elu`, `hardtanh` and similar in float64 | Nodes that have float64 kernels. |
| `x * 1e5` and `x / 1e5` of float16 | In float32 if the number is beyond float16, as in torch. |
| `x * y` and `x / y` of float16 and a scalar of another type | In float32, as in torch. |
| comparisons of float16 with numbers and scalars | The number is rounded to float16, as in torch. |
| `lerp` of infinities | By the absolute value of the weight, as in torch. |
| `log_softmax`, `sigmoid`, `silu` and `glu` in float64 | NaN beside an infinity; no value becomes 0 that is not. |
| `embedding_bag` | `ScatterND` with a reduction, in the type of the table or in float32 for 16 bits. |
| `huber_loss` and `soft_margin_loss` of two types | `Cast` to the type of the first argument, as in torch. |
| `cross_entropy` in float64 | NaN beside an infinity. |
| `multilabel_margin_loss` with targets that end at a -1 | What comes after the -1 is not counted. |
| `repeat_interleave`, `layer_norm` and `prod` of no elements | `Tile`, arithmetic and `ReduceProd`. |
| `flip` of a scalar | The scalar. |
| `a + b` of booleans, `nonzero` of floats | `Or`, and a `Cast`. |
| `heaviside` and `xlogy` of NaN, `var`, `std` and `mse_loss` of no numbers | 0, NaN and NaN, as in torch. |
| `addmm`, `addcmul`, `addcdiv` in float64 | The factors are float64. |
| `cross` without `dim` | Along the first dimension of size 3, which must be static. |
| `>>` and `<<` of uint8, int8 and int16 | In int32, cast back. |
| `einsum` of booleans and short integers, or of several types | In int64, cast back, or in the type of the result. |
| `grid_sample` of volumes | `GridSample` of opset 20, so that the model has at least that opset. |
| `avg_pool2d` and `avg_pool3d` with `divisor_override` | Sums of `Slice`. |
| `put`, `masked_select`, `resize_` | `ScatterElements`, `Compress`, `Reshape` and `Slice`. |
| `squeeze` of a size that is not 1 | `Identity`. |
| `x[:, mask] = y` and similar, with a mask of uint8 | The mask's indices, from `NonZero`. |
| `scatter`, `scatter_add`, `scatter_reduce` with an index smaller than the source | A `Slice` of the source. |
| `expand` to sizes computed from data | -1 is replaced by 1, which means the same in ONNX. |
| `as_strided` of a part of a tensor, or of columns | `Gather` from the elements in the order of torch's memory. |
| `1.5 - x`, `torch.divide`, `stack` and similar, of several types | `Cast` to the type that torch computes in. |
| numbers in float64 models, as in `x * 0.1` | The nearest float64, not the nearest float32. |
| norms of other orders than 0, 1, 2 and infinity in float64 | `Pow` by float64, not by float32. |
| `mean` over a size of 0, or one that depends on values | NaN if there is nothing to average. |
| batch normalization in training | By the statistics of the batch, for 16 bits in float32. |
| `scatter_add`, `scatter_reduce`, `index_add` and `index_put(accumulate=True)` of 16 bits | In float32, cast back. |
| `LSTM(proj_size=...)` | A `Scan` over the time steps; ONNX's `LSTM` has no projection. |
| `zeros`, `full` and similar, if complex | Constant pairs of reals. |
| `copy`, `select`, `slice_scatter`, `select_scatter` of complex tensors | The same nodes on pairs of reals. |
| `einsum` of complex tensors | `Einsum` on pairs of reals, which also sums over the pairs. |
| elementwise functions, comparisons and powers of complex tensors | Arithmetic on real and imaginary parts. |
| views, slices, indices, sums and `where` of complex tensors | The nodes for real tensors, on both parts. |
| products of complex matrices and vectors | `MatMul` on real and imaginary parts. |
| variances and standard deviations of complex tensors | Sums of squares of both parts. |
| quotients and reciprocals of complex tensors | Smith's algorithm: no part overflows before the result does. |
| `abs` of complex tensors | Squares that do not overflow or underflow: in float64, or of the scaled smaller part. |
| `atan2`, and `angle` of complex tensors | `Atan` of the smaller slope; signed zeros, infinities and NaN as in torch. |
| `scaled_dot_product_attention` with a mask, below opset 23 | Rows that are masked as a whole are 0. |
| `logsigmoid`, `logaddexp`, `logaddexp2`, `binary_cross_entropy_with_logits` | `Softplus`; finite far from 0 too. |
| `remainder`, `floor_divide`, `div(rounding_mode="floor")` of floats | `Mod`, which is exact. |
| `div` of integers with a `rounding_mode` | `Div` of integers, not of float32; see below. |
| `logit` with `eps` | NaN stays NaN. |
| `torch._grouped_mm`, and what transformers calls in its place | `Split`, and a `MatMul` for each group. |

ONNX does not define where `TopK` puts a NaN, and ONNX Runtime before 1.32 puts it anywhere. Therefore the values are
converted to a wider type, in which NaN becomes a number above infinity. float64 has no wider type, and needs two
`TopK`. On one core, sorting takes up to a fifth longer, and finding the first 50 of 50,000 numbers three times as long
(0.18 ms).

## Integer division

ONNX Runtime's `Div` of int32 and int64, and before 1.32 its `Mod`, end the process for the smallest integer and -1. In
every model that `exporters.export` returns, whoever emitted the node, an `If` looks for the smallest integer among the
dividends, and divides in a way that gives what torch gives: `torch.div(rounding_mode="trunc")`, which ends the process
in torch too, gives the smallest integer. Before 1.32, ONNX Runtime computes `fmod` of int64 in float64; another `If`
computes it from the quotient where a dividend is too large for that. A million int64 are divided in 1.3 times the
time, int32 in 1.2 times; with such dividends, in two to three times. A constant divisor needs no `If`, except for
`fmod` of int64, and neither do sizes. With `keep_functions=True`, functions are inlined if one of them divides
integers by a tensor. Nodes whose element type neither torch nor ONNX's shape inference knows stay as they are. A
divisor that is one number and may be 0 is expanded to the shape of the dividends, because ONNX Runtime refuses it where
there are no dividends.

A divisor of 0 is an error: when the session is created if the divisor is a constant, and even if it divides nothing. A
shift by a negative number, or by all bits or more, gives 0, or -1 for a negative number that is shifted right, as in
torch. Powers of integers are left to ONNX Runtime's `Pow`, which computes in float64: beyond 2**53, and for negative
exponents, its results differ from torch's.

## Small values of a sigmoid

ONNX Runtime computes `Sigmoid` of float32 and float16 with an error of up to 2e-7, which is a rounding of the largest
value, 1. So small values have few correct digits: 9e-8 instead of 4e-8 at -17, and 0 below -18. `silu` has the error of
its sigmoid. An export keeps the node, because it is fast, and runtimes fuse it with others. Where small values matter,
use `logsigmoid`, or write `1 / (1 + torch.exp(-x))`.

## Infinite multiples in matrix products

ONNX Runtime multiplies a matrix product by the constant by which one of its factors is multiplied, instead of the
factor. For an infinite constant, `(x * math.inf) @ y` is infinite where torch gives NaN: the sum of infinities of both
signs. A session created with `disabled_optimizers=["MatMulScaleFusion"]` gives NaN too.

## Squares beyond float32

Where the squares of float32 numbers are too large for float32, from 2e19 on, `var`, `std` and norms are infinite. torch
gives infinity too in most of these calls, but its CPU kernels compute some in float64, such as `std` along a dimension
and the norm of one number. `layer_norm` of such numbers is 0, where torch gives NaN.

## Where a maximum may be NaN

ONNX does not define the maximum of numbers with NaN among them. ONNX Runtime returns NaN or the largest of the others,
depending on where the NaN is; torch returns NaN. An export leaves `ReduceMax`, `ReduceMin`, `ArgMax`, `ArgMin`,
`MaxPool`, and `ScatterElements` by maximum and minimum, as torch's exporter emits them: few models have NaN there, and
looking for it takes longer than the reduction. This concerns `max`, `min`, `amax`, `amin`, `aminmax`, `argmax`,
`argmin`, norms of order infinity, `max_pool1d` to `max_pool3d`, and `scatter_reduce` by `"amax"` or `"amin"`.
`maximum`, `minimum`, `clamp`, `relu`, `softmax` and `logsumexp` propagate NaN as in torch. `multi_margin_loss` of
NaN is NaN, as in what torch decomposes it into; torch itself leaves it out.

Two ops of this library compute as torch does. Register them for the calls whose NaN matters:

```python
import torch
import exporters
import pyops
from pyops.kernels.reductions import amax, amin

for name, op in (("amax", amax), ("max", amax), ("amin", amin), ("min", amin)):
    exporters.register_translation(f"aten::{{name}}", op)


class Range(torch.nn.Module):
    def forward(self, x):
        return x.amax(1), x.min()


x = torch.tensor([[1.0, float("nan"), 3.0], [5.0, 4.0, 6.0]])
program = exporters.export(Range().eval(), (x,), verbose=False)
print(pyops.InferenceSession(program).run(None, {{"x": x.numpy()}}))
```

<!-- output -->
```
[array([nan,  6.], dtype=float32), array(nan, dtype=float32)]
```

If you need the index too, write `x.topk(1, dim)` in the model instead of `x.max(dim)` or `x.argmax(dim)`. And with
[`fallback="verify"`](fallback.md), an export compares every call on the example: where NaN in the example is lost, the
call goes to torch.
"""


def page() -> str:
    """Build the whole page."""
    supported = ", ".join(f"`{name}`" for name in sorted({*rows, *absent}))
    parts = [INTRODUCTION.format(supported=textwrap.fill(supported, 120))]
    for module, ops in itertools.groupby(sorted(OPS.values(), key=_module), _module):
        of_complex = module == complex_values.__name__
        parts += [_family(module), *map(_line if of_complex else _section, ops), *[""] * of_complex]
    return "\n".join(parts)


def _module(op: Op[..., Any]) -> str:
    return op.kernels["cpu"].__module__


def _family(module: str) -> str:
    summary = inspect.getdoc(sys.modules[module]) or ""
    return f"## {module.rpartition('.')[2].replace('_', ' ').capitalize()}\n\n{_markdown(summary)}\n"


def _line(op: Op[..., Any]) -> str:
    """Name an op that is described where the one of real numbers is."""
    summary = NumpyDocString(inspect.getdoc(op.kernels["cpu"]) or "")["Summary"]
    return _markdown(f"- {op.name}: {' '.join(summary)}")


def _section(op: Op[..., Any]) -> str:
    signature = op.signature
    described = NumpyDocString(inspect.getdoc(op.kernels["cpu"]) or "")
    given = _by_name(described["Parameters"])
    lines = [f"### {op.name}\n", _markdown("\n".join([*described["Summary"], "", *described["Extended Summary"]])), ""]
    lines += ["| | name | type | |", "|---|---|---|---|"]
    for item in signature.inputs:
        kind = "variadic input" if item.variadic else "optional input" if item.optional else "input"
        lines.append(_row(kind, item.name, _type(item), given.get(item.name)))
    for attribute in signature.attributes:
        spelled = str(attribute).partition(": ")[2]
        lines.append(_row("attribute", attribute.name, f"`{spelled}`", given.get(attribute.name)))
    returned = _by_name(described["Returns"])
    for output, item in zip(signature.outputs, itertools.cycle(described["Returns"]), strict=False):
        lines.append(_row("output", output.name, _type(output), returned.get(output.name, item)))
    types, raised = _types(op), _entries(described["Raises"])
    lines += ["", *filter(None, [types and f"{types}.\n", raised and f"Raises {raised}\n"])]
    return "\n".join(lines)


def _by_name(entries: Any) -> dict[str, Any]:
    return {name.lstrip("*"): item for item in entries for name in item.name.split(", ")}


def _row(kind: str, name: str, type_: str, described: Any) -> str:
    words = " ".join(described.desc)
    return f"| {kind} | `{name}` | {type_} | {_markdown(words).replace('|', chr(92) + '|')} |"


def _type(item: Input | Output) -> str:
    return item.type.name if len(item.type.dtypes) > 1 else str(item.type)


def _types(op: Op[..., Any]) -> str:
    """List the types of each type parameter."""
    tensors = (*op.signature.inputs, *op.signature.outputs)
    parameters = dict.fromkeys(item.type for item in tensors if len(item.type.dtypes) > 1)
    return "; ".join(f"{item.name} is one of {', '.join(map(dtype_name, item.dtypes))}" for item in parameters)


def _entries(entries: Any) -> str:
    raised = "; ".join(f"`{item.type}`: {' '.join(item.desc).removesuffix('.')}" for item in entries)
    return _markdown(raised and f"{raised}.")


def _markdown(text: str) -> str:
    """Convert the reStructuredText of a docstring to Markdown."""
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    return text.replace("``", "`").strip()


if __name__ == "__main__":
    PAGE.write_text(page())
