"""Writes kernel_library.md from the declarations of `pyops.kernels`: ``python docs/kernel_library.py``."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from numpydoc.docscrape import NumpyDocString

from exporters._library.library import rows
from exporters._library.table import absent
from pyops._ops.op import Op
from pyops._schema.dtypes import dtype_name
from pyops._schema.signature import Input, Output
from pyops.kernels import OPS

PAGE = Path(__file__).with_suffix(".md")

INTRODUCTION = """# The kernel library

What people miss most in torch's exporter exists as operators of the domain `pyops`, in NumPy, with torch's semantics.
`exporters.export` uses them [where torch's exporter has nothing](export.md#operators-that-torchs-exporter-lacks), and
a model that has them runs where torch is not installed: `pyops.InferenceSession` knows them. Special functions and
matrix factorizations need SciPy, `pip install "onnx-pyops[kernels]"`.

```python
import numpy as np
from pyops.kernels.symmetric_factorization import cholesky_ex

factor, info = cholesky_ex(np.array([[4.0, 2.0], [2.0, 5.0]]))
print(factor)
```

<!-- output -->
```
[[2. 0.]
 [1. 2.]]
```

In sessions that others create, `pyops.kernels.declare_all()` before `pyops.register_custom_ops` makes them known.

Their declarations are good to read before writing one: each is a function in `pyops/kernels`, and this page is made of
them, so that somebody can implement an operator from it in another language. All are version 1. Shapes are those of
NumPy; *(...)* is any number of dimensions. ONNX Runtime's custom operators have no complex types: complex values are
pairs of reals along a last dimension of 2.

## Which torch operators they carry

{carried}

## Calls that become other nodes of ONNX's

Some of these are not carried by an op of `pyops`, but by nodes of ONNX's own in place of those that torch's exporter
makes, and only where these are wrong or refused; such a model runs in any session. What is different in the model:

| call | nodes |
|---|---|
| `sort`, `argsort`, `topk`, `quantile`, `nanquantile` of floats | `TopK` with NaN above infinity; see below. |
| `argmax` and `argmin` of all, with `keepdim` | The result is reshaped. |
| `cross` without `dim` | Along the first dimension of size 3, which has to be fixed. |
| `>>` and `<<` of uint8 | `BitShift` alone. |
| `einsum` of booleans and short integers | In int64, cast back where torch does. |
| `squeeze` of a size that is not 1 | `Identity`. |
| `x[:, mask] = y` and the like, a mask of uint8 | The mask's indices, by `NonZero`. |
| `scatter`, `scatter_add`, `scatter_reduce` with an index smaller than the source | A `Slice` of the source. |
| `expand` to sizes that data tells | -1 counts as 1, as ONNX spells it. |
| `LSTM(proj_size=...)` | A `Scan` over the times; `LSTM` has no projection. |
| `zeros`, `full` and the like, if complex | Constant pairs of reals. |
| `copy`, `select`, `slice_scatter`, `select_scatter` of complex tensors | Those of the pairs. |
| `einsum` of complex tensors | `Einsum` of the pairs, which sums over them too. |

ONNX leaves open where `TopK` puts a NaN, and ONNX Runtime before 1.32 puts it anywhere. So `TopK` gets numbers of a
wider type, which has room for NaN above infinity; float64 has no wider type, and takes two `TopK`. On one core, sorting
takes up to a fifth longer, and the first 50 of 50,000 numbers three times as long, 0.18 ms.

`argmax` and `argmin` of tensors with NaN are left to torch's exporter: which place a NaN has there is ONNX Runtime's.
"""


def page() -> str:
    """The whole page."""
    carried = ", ".join(f"`{name}`" for name in sorted({*rows, *absent}))
    parts = [INTRODUCTION.format(carried=textwrap.fill(carried, 120))]
    for module, ops in itertools.groupby(sorted(OPS.values(), key=_module), _module):
        parts += [_family(module), *map(_section, ops)]
    return "\n".join(parts)


def _module(op: Op[..., Any]) -> str:
    return op.kernels["cpu"].__module__


def _family(module: str) -> str:
    summary = inspect.getdoc(sys.modules[module]) or ""
    return f"## {module.rpartition('.')[2].replace('_', ' ').capitalize()}\n\n{_markdown(summary)}\n"


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
    """Which types each type parameter stands for."""
    tensors = (*op.signature.inputs, *op.signature.outputs)
    parameters = dict.fromkeys(item.type for item in tensors if len(item.type.dtypes) > 1)
    return "; ".join(f"{item.name} is one of {', '.join(map(dtype_name, item.dtypes))}" for item in parameters)


def _entries(entries: Any) -> str:
    return _markdown("; ".join(f"`{item.type}`: {' '.join(item.desc)}" for item in entries))


def _markdown(text: str) -> str:
    """ReStructuredText as the docstrings have it, in Markdown."""
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    return text.replace("``", "`").strip()


if __name__ == "__main__":
    PAGE.write_text(page())
