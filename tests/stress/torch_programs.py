"""Random programs of torch's operators, and their exported models against torch, call by call.

``python tests/stress/torch_programs.py SEED COUNT`` prints what is wrong, shrunk, and the counts of each outcome. What
was wrong or refused once is shown once: a call that was refused is then left out of the programs that follow. An
exported model returns the value of every call, so that each call is compared with torch's on the values that ONNX
Runtime itself gave for its arguments: integers and booleans exactly, NaN and infinities at the same places, and other
numbers within ten times the difference between torch and the same call in float64. Every fourth program returns only
the values that no call takes, and is compared as a whole.
"""

from __future__ import annotations

import linecache
import logging
import math
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import CodeType
from typing import Any

import numpy as np
import onnxruntime
import torch

import exporters
import pyops
from exporters._torch.tensors import as_onnx_array

FLOATS = (torch.float32, torch.float64, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16)
BOOL, COMPLEX = (torch.bool,), (torch.complex64, torch.complex128)
KINDS = {
    "f": FLOATS,
    "i": INTEGERS,
    "b": BOOL,
    "n": FLOATS + INTEGERS,
    "a": FLOATS + INTEGERS + BOOL,
    "m": (torch.bool, torch.uint8),
    "c": COMPLEX,
    "z": COMPLEX + FLOATS,
}
"""The element types of the tensors that a letter in a call of `CALLS` stands for."""

NUMBERS: dict[str, Sequence[str]] = {
    "K": ("0", "1", "2", "3", "5", "-1", "-3", "7", "100", "255", "(2**31 - 1)", "(-(2**31))", "(2**40 + 1)"),
    "R": ("0.1", "0.5", "-1.5", "(1 / 3)", "2.5", "1e-8", "math.pi", "0.0", "-0.0", "math.inf", "-math.inf", "1e30"),
    "P": ("1", "2", "3", "4"),
    "E": ("0", "1", "2", "3", "4", "5"),
    "D": ("0", "-1", "1", "-2"),
    "T": tuple(str(dtype) for dtype in (*FLOATS, torch.int64, torch.int32, torch.bool)),
    "F": tuple(str(dtype) for dtype in FLOATS),
    "O": ("0", "1", "-1"),
    "B": ("True", "False"),
}
"""What a capital letter stands for; S is a size of the first tensor of the call, and N any number."""

ARITHMETIC = [f"{{a}} {sign} {{{other}2}}" for sign in ("+", "-", "*", "/") for other in ("a", "N", "S")] + [
    f"{{{number}}} {sign} {{a}}" for sign in ("+", "-", "*", "/") for number in ("N", "S")
]
INTEGER_DIVISION = [
    *("{n} // {P}", "{n} % {P}", "{n} // {S}", "{n} % {S}", "{n} // -3", "{n} % -3", "{f} % {R}", "{f} // {R}"),
    *("{i} // (({i2} & 7) + 1)", "{i} % (({i2} & 7) + 1)", "torch.fmod({n}, {P})", "torch.fmod({f}, {f2})"),
    *("torch.div({n}, {P}, rounding_mode='trunc')", "torch.div({n}, {S}, rounding_mode='floor')"),
    *("torch.remainder({f}, {f2})", "torch.floor_divide({f}, {f2})", "{P} // (({i} & 7) + 1)", "{S} % (({i} & 7) + 1)"),
]
POWERS = [
    *("{n} ** {E}", "{n} ** {S}", "{f} ** {R}", "{f} ** {f2}", "{i} ** ({i2} & 3)", "{n}.square()", "{P} ** {f}"),
    *("torch.pow({n}, {E})", "{R} ** {f}", "torch.float_power({n}, {E})", "{f}.rsqrt()", "{n}.reciprocal()"),
]
COMPARISONS = [
    *(f"{{a}} {sign} {{{other}2}}" for sign in ("<", "<=", "==", "!=", ">") for other in ("a", "N", "S")),
    *("torch.isclose({f}, {f2})", "torch.maximum({n}, {n2})", "torch.minimum({n}, {n2})", "torch.fmax({f}, {f2})"),
    *("{n}.clamp(min={N})", "{n}.clamp(max={N})", "{n}.clamp({N}, {N2})", "{n}.clamp(max={S})", "{n}.clamp_min({N})"),
    *("{n}.clamp({n2})", "{n}.clamp(max={n2})", "{n}.clamp_max({N})", "torch.clip({f}, -1.5)", "torch.isin({i}, {i2})"),
]
LOGIC = [
    *("{b} & {b2}", "{i} | {i2}", "{i} ^ {i2}", "~{i}", "~{b}", "{a}.logical_not()", "torch.logical_xor({a}, {a2})"),
    *("{i} << {P}", "{i} >> {P}", "{i} & {K}", "{b} * {S}", "{b} + {b2}", "{b} * {N}", "{b} | {b2}"),
    *("torch.where({b}, {a}, {a2})", "torch.where({b}, {a}, {N})", "torch.where({m}, {a}, {a2})", "{a}.bool()"),
    *("{a}.masked_fill({b}, {N})", "{a} * ({a2} > 0)", "{a}.isnan()", "{f}.isinf()", "{f}.isfinite()"),
]
ELEMENTWISE = [
    *(f"torch.{name}({{n}})" for name in ("abs", "neg", "sign", "sin", "cos", "tan", "atan", "sinh", "asinh", "tanh")),
    *(f"torch.{name}({{n}})" for name in ("exp", "exp2", "expm1", "log1p", "sqrt", "log", "log2", "log10", "sigmoid")),
    *(f"torch.{name}({{f}})" for name in ("floor", "ceil", "round", "trunc", "frac", "erf", "erfc", "sinc", "cosh")),
    *(
        f"torch.{name}({{f}})"
        for name in ("nan_to_num", "relu", "deg2rad", "rad2deg", "logit", "acos", "asin", "atanh")
    ),
    *(f"F.{name}({{f}})" for name in ("silu", "mish", "softplus", "softsign", "elu", "selu", "hardswish", "gelu")),
    *(f"F.{name}({{f}})" for name in ("hardsigmoid", "relu6", "logsigmoid", "tanhshrink", "softshrink", "hardtanh")),
    *("F.celu({f}, 0.7)", "F.elu({f}, 0.3)", "F.leaky_relu({f}, 0.1)", "F.gelu({f}, approximate='tanh')"),
    *("F.threshold({f}, 0.1, 0.2)", "F.hardshrink({f}, 0.1)", "F.softplus({f}, 0.3)", "torch.round({f}, decimals=1)"),
    *("torch.addcmul({f}, {f2}, {f3}, value={R})", "torch.addcdiv({f}, {f2}, {f3}, value={R})", "torch.frexp({f})[0]"),
    *("torch.lerp({f}, {f2}, {R})", "torch.add({n}, {n2}, alpha={P})", "torch.sub({f}, {f2}, alpha={R})"),
    *("torch.xlogy({f}, {f2})", "torch.hypot({f}, {f2})", "torch.atan2({n}, {n2})", "torch.logaddexp({f}, {f2})"),
    *("torch.copysign({f}, {n})", "torch.rsub({n}, {N})", "torch.heaviside({f}, {f2})", "{f}.signbit()", "{f}.sgn()"),
]
REDUCTIONS = [
    *(f"{{a}}.{name}()" for name in ("sum", "prod", "any", "all")),
    *(f"{{a}}.{name}({{D}})" for name in ("sum", "prod", "any", "all", "cumsum", "cumprod")),
    *(f"{{n}}.{name}()" for name in ("amax", "amin", "max", "min", "argmax", "argmin", "count_nonzero")),
    *(f"{{n}}.{name}({{D}})" for name in ("amax", "amin", "argmax", "argmin", "count_nonzero")),
    *(f"{{n}}.{name}({{D}})[0]" for name in ("max", "min", "sort", "cummax", "cummin")),
    *(f"{{f}}.{name}({{D}})" for name in ("mean", "std", "var", "logsumexp", "nansum", "nanmean", "softmax")),
    *(f"{{a}}.{name}({{D}}, dtype={{F}})" for name in ("sum", "prod", "cumsum", "cumprod")),
    *("{n}.mean({D}, dtype={F})", "F.softmax({f}, {D}, dtype={F})", "F.log_softmax({f}, {D})", "{f}.norm()"),
    *("F.log_softmax({f}, {D}, dtype={F})", "{f}.norm(dim={D})", "{f}.norm(3.0, {D})", "{f}.var({D}, correction=0)"),
    *("{n}.sum({D}, keepdim=True)", "{n}.argmax({D}, keepdim=True)", "torch.var_mean({f}, {D})[0]", "{f}.aminmax()[1]"),
    *("torch.linalg.vector_norm({f}, dtype={F})", "{f}.logcumsumexp({D})", "{n}.diff(dim={D})", "{n}.trace()"),
    *(
        "torch.dist({f}, {f2})",
        "F.cosine_similarity({f}, {f2}, {D})",
        "F.normalize({f}, dim={D})",
        "{f}.sum(dtype={F})",
    ),
    *("F.layer_norm({f}, {f}.shape[-1:])", "F.layer_norm({f}, {f}.shape[-1:], eps=0.001)", "{n}.median()"),
    *(
        "{f}.quantile(0.3, {D})",
        "{n}.topk(1, {D})[0]",
        "F.mse_loss({f}, {f2})",
        "F.smooth_l1_loss({f}, {f2}, beta=0.3)",
    ),
    *("{n}.unique()", "torch.unique({n}, return_counts=True)[1]", "{n}.unique_consecutive()", "{b}.sum({D})"),
    *("F.rms_norm({f}, {f}.shape[-1:])", "{n}.nonzero()", "{f}.nansum()", "{n}.msort()", "torch.trapz({f})"),
]
VIEWS = [
    *("{a}.T", "{a}.mT", "{a}.transpose(0, {D})", "{a}.permute(1, 0)", "{a}.unsqueeze({D})", "{a}.squeeze({D})"),
    *(
        "{a}.flatten()",
        "{a}.reshape(-1)",
        "{a}.reshape({a}.shape[0], -1)",
        "{a}.view(-1, 1)",
        "{a}.ravel()",
        "{a}[None]",
    ),
    *("{a}[0]", "{a}[-1]", "{a}[..., 0]", "{a}[1:]", "{a}[:-1]", "{a}[::2]", "{a}[:, 1:]", "{a}[-2:]", "{a}[:, ::2]"),
    *("{a}[{S} - 1:]", "{a}[: {S} - 1]", "{a}[-({S} - 1):]", "{a}[{S} // 2:]", "{a}[1:{S}]", "{a}[:0]", "{a}[5:]"),
    *("{a}.diagonal()", "{a}.diagonal({O})", "{a}.diag()", "{a}.diag({O})", "{a}.diag_embed()", "{a}.tril({O})"),
    *(
        "{a}.triu({O})",
        "{a}.flip({D})",
        "{a}.roll({O}, {D})",
        "{a}.roll({P})",
        "{a}.expand(2, *{a}.shape)",
        "{a}.rot90()",
    ),
    *(
        "{a}.chunk(2, {D})[0]",
        "{a}.chunk(2, {D})[-1]",
        "{a}.split(2, {D})[-1]",
        "{a}.unbind({D})[0]",
        "{a}.unbind()[-1]",
    ),
    *("{a}.tensor_split(2, {D})[-1]", "{a}.narrow({D}, 0, 1)", "{a}.select({D}, -1)", "{a}.unfold({D}, 2, 1)"),
    *(
        "{a}.repeat(2, 1)",
        "{a}.repeat_interleave(2, {D})",
        "{a}.repeat_interleave({E})",
        "{a}.repeat_interleave(0, {D})",
    ),
    *(
        "{a}.tile(2)",
        "{a}.swapaxes(0, {D})",
        "{a}.movedim(0, {D})",
        "{a}.broadcast_to({a}.shape)",
        "{a}.expand_as({a2})",
    ),
]
JOINED = [
    *(f"torch.{name}([{{a}}, {{a2}}])" for name in ("cat", "stack", "hstack", "vstack", "dstack", "column_stack")),
    *("torch.cat([{a}, {a2}], {D})", "torch.stack([{a}, {a2}, {a3}], {D})", "torch.block_diag({n}, {n2})"),
    *(
        "F.pad({n}, (1, 2), value={N})",
        "F.pad({n}, (0, -1))",
        "torch.cartesian_prod({n}, {n2})",
        "torch.outer({n}, {n2})",
    ),
    *("{n} @ {n2}", "torch.matmul({f}, {f2})", "{n} @ {n2}.T", "torch.einsum('...i,...i->...', {n}, {n2})"),
    *("torch.einsum('ii->i', {n})", "torch.einsum('ij->ji', {n})", "torch.dot({n}, {n2})", "torch.kron({n}, {n2})"),
    *("torch.addmm({f}, {f2}, {f3}, beta={R}, alpha={R2})", "torch.cdist({f}, {f2})", "F.linear({f}, {f2})"),
    *("torch.tensordot({f}, {f2}, 1)", "torch.cross({n}, {n2}, dim=-1)", "torch.baddbmm({f}, {f2}, {f3}, alpha=0.1)"),
]
CREATED = [
    *("torch.arange({a}.shape[0])", "torch.arange({a}.shape[0], dtype={F})", "torch.arange(0, 1, 0.1, dtype={F})"),
    *("torch.full({a}.shape, {N})", "torch.full_like({a}, {K})", "torch.zeros_like({a})", "{a}.new_full((2,), {K})"),
    *(
        "torch.linspace(0, 1, {a}.shape[0], dtype={F})",
        "torch.eye({a}.shape[0])",
        "torch.tensor({N})",
        "{a}.new_ones(2)",
    ),
    *("{f} + torch.tensor({R}, dtype={F})", "{a} * torch.tensor({N})", "torch.arange({S}, 0, -1)", "{a}.to({F})"),
    *("{a}.to({T})", "{a}.double()", "{a}.half()", "{a}.int()", "{a}.byte()", "{a}.type_as({a2})", "{a}.long()"),
    *("torch.ones({a}.shape[0], dtype={T}) * {N}", "torch.scalar_tensor({R}, dtype={F}) * {f}", "{a} * {a}.numel()"),
    *("torch.bucketize({f}, torch.tensor([0.0, 0.5, 1.0]))", "F.one_hot({i} & 3, 4)", "torch.complex({f}, {f2})"),
]
INDEXED = [
    *("{a}[{b}]", "{a}[torch.tensor([0, -1])]", "{a}[:, torch.tensor([0, 0])]", "{a}[torch.tensor(1)]", "{a}[{i} & 1]"),
    *("torch.take({a}, {i} & 1)", "{a}.index_select({D}, torch.tensor([1, 0]))", "{a}.masked_select({b})"),
    *("{a}.gather({D}, ({a}.long() & 1))", "torch.take_along_dim({a}, {i}.long() & 1, {D})", "{a}[{b}, 0]"),
    *("{a}.scatter({D}, {i}.long() & 1, {K})", "{a}.scatter({D}, {i}.long() & 1, {a})", "{a}.index_fill({D}, I, {N})"),
    *("{n}.scatter_add({D}, {i}.long() & 1, {n})", "{n}.scatter_reduce({D}, {i}.long() & 1, {n}, 'amax')"),
    *("{n}.index_add({D}, I, {n}.narrow({D}, 0, 2))", "{a}.index_copy({D}, I, {a}.narrow({D}, 0, 2))"),
    *("{a}.scatter({D}, NO_ROWS, {a})", "{n}.scatter_add({D}, NO_ROWS, {n})", "{a}[NO_INDEX]", "{a}[..., NO_INDEX]"),
    *(
        "{n}.scatter_reduce({D}, {i}.long() & 1, {n}, 'sum', include_self=False)",
        "torch.searchsorted({f}.msort(), {f2})",
    ),
    *("F.embedding({i} & 1, {f})", "torch.bincount({i}.flatten() & 7)", "{a}.index_put((I,), {a}[0])"),
]
WRITTEN = [
    *(
        f"out = {{a}}.clone(); out[{place}] = {value}"
        for place in ("0", "..., -1", "1:", "I")
        for value in ("{N}", "{a2}")
    ),
    *("out = {a}.clone(); out[{b}] = {N}", "out = {n}.clone(); out += {n2}", "out = {n}.clone(); out *= {N}"),
    *(
        "out = {a}.clone(); part = out[1:]; part.zero_()",
        "out = {n}.clone(); out.T.add_({K})",
        "out = {f}.clone(); out.relu_()",
    ),
    *(
        "out = {n}.clone(); out[:, 0].mul_(2)",
        "out = {n}.clone(); out[::2] += {n}[::2]",
        "out = {f}.clone(); out.clamp_(max={R})",
    ),
    *(
        "out = {a}.clone(); out.diagonal().fill_({K})",
        "out = {a}.clone(); out.copy_({a2})",
        "out = {f}.clone(); out.div_({N})",
    ),
    *(
        "out = {f}.clone(); out.pow_({E})",
        "out = {n}.clone(); out.masked_fill_({n} > 0, {K})",
        "out = {n}.clone(); out.sub_({S})",
    ),
    *("out = {n}.clone(); flat = out.view(-1); flat[0] = 5", "out = {n}.clone(); out[-1, :] = out[0, :]"),
]
OF_COMPLEX = [
    *("torch.view_as_real({c})", "{c}.real", "{c}.imag", "{c}.abs()", "{c}.angle()", "{c}.conj().real", "{z} * {c}"),
    *(
        "{c} + {z}",
        "{c} - {N}",
        "{c} * {N}",
        "{c} / {c2}",
        "{c}.sum()",
        "{c}.mean({D})",
        "{c} @ {c2}",
        "torch.exp({c})",
    ),
    *("torch.fft.fft({z}, dim={D})", "torch.fft.rfft({f})", "torch.fft.irfft({c})", "torch.fft.ifft({c}, dim={D})"),
    *(
        "torch.fft.irfft2(torch.fft.rfft2({f}), s={f}.shape[-2:])",
        "torch.fft.irfft(torch.fft.rfft({f}), n={f}.shape[-1])",
    ),
    *("torch.fft.rfft2({f})", "torch.polar({f}.abs(), {f})", "{c}[0]", "{c}.flip({D})", "{c}.reshape(-1)", "{c}.T"),
    *(
        "torch.cat([{c}, {c2}])",
        "{c} * 1j",
        "torch.where({b}, {c}, {c2})",
        "{c}.pow(2)",
        "torch.sqrt({c})",
        "{c} == {c2}",
    ),
    *("torch.fft.fftshift({c})", "{c}.diagonal()", "{c}.sum({D})", "{c}.prod({D})", "{c}.cumsum({D})", "-{c}"),
]
LOSSES = [
    *(
        f"F.{name}({{f}}, {{f2}}, reduction={reduction!r})"
        for name in ("l1_loss", "huber_loss", "soft_margin_loss", "poisson_nll_loss", "multilabel_soft_margin_loss")
        for reduction in ("none", "mean", "sum")
    ),
    *("F.kl_div({f}, {f2}, log_target=True)", "F.kl_div({f}, {f2}.softmax({D}), reduction='sum')"),
    *(
        f"F.{name}({{f}}, {{f2}}.nan_to_num().argmax(-1), ignore_index=1, reduction={reduction!r})"
        for name in ("cross_entropy", "nll_loss")
        for reduction in ("none", "mean", "sum")
    ),
    *(
        "F.cross_entropy({f}, {f2}.nan_to_num().argmax(-1), label_smoothing=0.1)",
        "F.cross_entropy({f}, {f2}.softmax(-1))",
    ),
    *("F.multilabel_margin_loss({f}, {f2}.nan_to_num().argsort(-1) - 1)", "F.hinge_embedding_loss({f}, {f2}.sign())"),
    *("F.margin_ranking_loss({f}, {f2}, {f3}.sign(), 0.3)", "F.triplet_margin_loss({f}, {f2}, {f3}, swap=True)"),
    *("F.gaussian_nll_loss({f}, {f2}, {f3}.square())", "F.binary_cross_entropy_with_logits({f}, {f2})"),
    *("F.binary_cross_entropy({f}.sigmoid(), {f2}.sigmoid())", "F.glu({f}.repeat(1, 2))", "F.softmin({f}, {D})"),
    *(
        "F.prelu({f}, torch.tensor(0.1, dtype={f}.dtype))",
        "F.hardtanh({f}, -0.3, 0.4)",
        "F.pairwise_distance({f}, {f2})",
    ),
    *(f"F.embedding_bag({{i}} & 1, {{f}}, mode={mode!r})" for mode in ("sum", "mean", "max")),
    *("F.avg_pool1d({f}, 2)", "F.adaptive_avg_pool1d({f}, 2)", "F.lp_pool1d({f}, 2, 2)"),
]
GROUPS = [
    *(ARITHMETIC, INTEGER_DIVISION, POWERS, COMPARISONS, LOGIC, ELEMENTWISE, REDUCTIONS, VIEWS, JOINED, CREATED),
    *(INDEXED, WRITTEN, OF_COMPLEX, LOSSES),
]
ADDING = re.compile(
    r"sum|mean|prod|std|var|norm|softmax|einsum|@|matmul|mm\(|dot|fft|dist|loss|linear|cosine|quantile"
    r"|trapz|cross|glu|pool|distance|bag|trace|outer|kron|diff"
)
"""Calls in which an error may be as large as the rounding of the largest number."""

CANCELLING = re.compile(
    r"lerp|addc|alpha|polar|elu|sigmoid|silu|hardswish|sin|cos|tan| / |% |//|fmod|remainder|\.angle"
)
"""Calls in which the error of an element may be as large as the rounding of the largest number that it comes from."""

EXPONENTIALS_LESS_ONE = re.compile(r"F\.(elu|celu|selu)\(")
"""Calls that ONNX defines by exp(x) - 1, whose error near 0 may be as large as the rounding of 1."""

STEEP = re.compile(r"erf|exp|pow|\*\*|sin|cos|tan|log|polar|elu|gelu|sigmoid|silu|mish|softplus|gamma")
"""Calls whose value may change by more than one rounding if an argument does."""

SQUARES = re.compile(r"var|std|norm|cdist|dist|cosine_similarity|mse_loss|hypot|addcmul")

NORMALIZING = re.compile(r"F\.(layer|group|batch|instance|rms)_norm\(")
"""Calls that may divide what is left of a difference by the root of an epsilon."""

MATRIX_PRODUCTS = re.compile(r"@|matmul|mm\(|dot|einsum|linear")

IN_PARTS = re.compile(r"soft_margin|cosine_similarity|kl_div")
"""Calls of which torch computes parts in the type of one argument, and not in that of the result."""

CONSTANT_POWERS = re.compile(r"\*\* (math|-?\d*\.\d)")
"""Calls whose exponent torch rounds to the type of the result in kernels for vectors, but not in what those leave."""

PRODUCTS = re.compile(r"\.(cum)?prod\(")

EXTREMES = re.compile(r"\.(max|min|amax|amin|aminmax|argmax|argmin|log_softmax)\(|'amax'")

NAMES: dict[str, Any] = {
    "torch": torch,
    "F": torch.nn.functional,
    "math": math,
    "I": torch.tensor([1, 0]),
    "NO_INDEX": torch.zeros(0, dtype=torch.int64),
    "NO_ROWS": torch.zeros(0, 3, dtype=torch.int64),
}
Tensors = dict[str, torch.Tensor]
FILE = "generated_program.py"
MOST_UNROUNDED = 6  # calls in a row between which ONNX Runtime does not round


@dataclass(frozen=True)
class Step:
    """A call whose value has a name."""

    name: str
    text: str
    operands: tuple[str, ...]

    def __str__(self) -> str:
        statements = self.text if self.text.startswith("out = ") else f"out = {self.text}"
        return re.sub(r"\bout\b", self.name, statements)

    def apply(self, values: Tensors) -> Any:
        names = {**NAMES, **{name: values[name] for name in self.operands}}
        exec(compiled(str(self)), names)
        return names[self.name]

    def kind(self, values: Tensors) -> str:
        """Return the call with types in place of names, and without its numbers."""
        kinds = {name: f"{values[name].dtype}{'' if values[name].ndim else '()'}" for name in self.operands}
        return re.sub(r"\b[xv]\d+\b|\b\d[\d.]*(?:e-?\d+)?\b", lambda match: kinds.get(match[0], "#"), self.text)


@cache
def compiled(text: str) -> CodeType:
    return compile(text, "<call>", "exec", dont_inherit=True)


@dataclass
class Program:
    """Calls, and values for each input: those of the example, others of its sizes, and others of other sizes."""

    steps: list[Step]
    samples: list[Tensors]
    dynamic: bool
    whole: bool = False
    results: list[str] = field(default_factory=list)
    exported: exporters.Program | None = None

    def __str__(self) -> str:
        lines = [f"def forward(self, {', '.join(self.samples[0])}):"]
        lines += [f"    {step}" for step in self.steps]
        shown = [f"torch.view_as_real({name})" if self.is_complex(name) else name for name in self.results]
        return "\n".join([*lines, f"    return {', '.join(shown)},"])

    def is_complex(self, name: str) -> bool:
        return self.known[0][name].is_complex()

    @cached_property
    def known(self) -> list[Tensors]:
        """The values of all names, for each sample."""
        return [self.computed(sample) for sample in self.samples]

    def computed(self, given: Tensors) -> Tensors:
        values = {name: value.clone() for name, value in given.items()}
        for step in self.steps:
            values[step.name] = step.apply(values)
        return values

    def failing(self) -> str | None:
        """Return the first name that torch cannot compute; calls that write may change what later ones can do."""
        for sample in self.samples:
            values = {name: value.clone() for name, value in sample.items()}
            for step in self.steps:
                try:
                    values[step.name] = step.apply(values)
                except Exception:  # torch raises errors of many kinds
                    return step.name
        return None

    def session(self) -> Any:
        names = dict(NAMES)
        linecache.cache[FILE] = (len(str(self)), None, str(self).splitlines(keepends=True), FILE)
        exec(compile(str(self), FILE, "exec", dont_inherit=True), names)
        model = type("Generated", (torch.nn.Module,), {"forward": names["forward"]})()
        arguments: dict[str, Any] = {"verbose": False}
        if self.dynamic:
            arguments["dynamic_shapes"] = {name: self._dynamic(name) for name in self.samples[0]}
        example = tuple(value.clone() for value in self.samples[0].values())
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self.exported = None
        self.exported = exporters.export(model.eval(), example, **arguments)
        return pyops.InferenceSession(self.exported, options)

    def _dynamic(self, name: str) -> dict[int, Any]:
        shapes = zip(*(sample[name].shape for sample in self.samples), strict=True)
        return {dim: torch.export.Dim.AUTO for dim, sizes in enumerate(shapes) if len(set(sizes)) > 1}

    def run(self, session: Any, sample: Tensors) -> Tensors:
        # By position, because torch renames the inputs that a program returns unchanged.
        feeds = {item.name: as_onnx_array(x) for item, x in zip(session.get_inputs(), sample.values(), strict=True)}
        found = dict(zip(self.results, map(torch.from_numpy, map(np.array, session.run(None, feeds))), strict=True))
        return {n: torch.complex(*v.unbind(-1)) if self.is_complex(n) else v for n, v in found.items()}


class Generator:
    """Makes a random program of calls that torch computes for every sample."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.noise = torch.Generator().manual_seed(seed)
        self.dynamic = self.rng.random() < 0.6
        sizes = [{"n": 4, "m": 3}] * 3 + ([{"n": 7, "m": 3}, {"n": 3, "m": 5}] if self.dynamic else [])
        shapes = [("n", "m"), ("n", "m"), ("n",), ("m",), ("n", 1), (2, "n"), (), (0, 3), ("m", "m"), (2, "n", "m")]
        kinds = [self.rng.choice(shapes) for _ in range(6)]
        dtypes = [*self.rng.sample(FLOATS[:2] * 2 + FLOATS, 3), *self.rng.sample(INTEGERS, 2), torch.bool]
        self.samples: list[Tensors] = [
            {
                f"x{index}": self.values(dtype, [of.get(dim, dim) if isinstance(dim, str) else dim for dim in shape])
                for index, (dtype, shape) in enumerate(zip(dtypes, kinds, strict=True))
            }
            for of in sizes
        ]
        self.known: list[Tensors] = [dict(sample) for sample in self.samples]
        self.steps: list[Step] = []

    def values(self, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
        if dtype == torch.bool:
            return torch.rand(shape, generator=self.noise) > 0.4
        x = torch.randn(shape, generator=self.noise, dtype=torch.float64) * self.rng.choice([1, 1, 3, 20])
        extremes = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e-30, 0.5, 1.5, 2.5]
        if not dtype.is_floating_point:
            x, limits = x.clamp(0 if dtype == torch.uint8 else -100, 120).round(), torch.iinfo(dtype)
            extremes = [limits.min, limits.max, 0, 1, 2**24 + 1, 2**53 + 1, -(2**31)]
        result = x.to(dtype)
        if self.rng.random() < 0.4:
            where = torch.rand(shape, generator=self.noise) < 0.3
            possible = [number for number in extremes if dtype.is_floating_point or limits.min <= number <= limits.max]
            chosen = [self.rng.choice(possible) for _ in range(result.numel())]
            result = torch.where(where, torch.tensor(chosen, dtype=dtype).reshape(shape), result)
        return result

    def program(self) -> Program:
        for _ in range(self.rng.randint(20, 40)):
            while not self.step():
                pass
        whole = self.rng.random() < 0.25
        used = {name for step in self.steps for name in step.operands}
        named = [step.name for step in self.steps]
        results = [name for name in named if not whole or name not in used]
        return Program(self.steps, self.samples, self.dynamic, whole, results)

    def step(self) -> bool:
        """Add a call, unless torch refuses it for some sample."""
        template = self.rng.choice(self.rng.choice(GROUPS))
        found: dict[str, str] = {}
        for letter in re.findall(r"\{(\w+)\}", template):
            if letter in found:
                continue
            is_other = letter[0] in KINDS and letter[0] in found and letter not in KINDS
            same = is_other and self.rng.random() < 0.25  # the same tensor twice
            text = found[letter[0]] if same else self.operand(letter[0], found)
            if text is None:
                return False
            found[letter] = text
        text = re.sub(r"\{(\w+)\}", lambda match: found[match[1]], template)
        step = Step(f"v{len(self.steps)}", text, tuple(dict.fromkeys(re.findall(r"\b[xv]\d+\b", text))))
        try:
            results = [step.apply(values) for values in self.known]
        except Exception:
            return False
        if not all(map(is_usable, results)) or any(
            len({getattr(r, key) for r in results}) > 1 for key in ("dtype", "ndim")
        ):
            return False
        if any(is_undefined(step, values, result) for values, result in zip(self.known, results, strict=True)):
            return False
        self.steps.append(step)
        for values, result in zip(self.known, results, strict=True):
            values[step.name] = result.clone()
        return True

    def operand(self, letter: str, found: dict[str, str]) -> str | None:
        if letter == "N":
            letter = self.rng.choice("KR")
        if letter in NUMBERS:
            return self.rng.choice(NUMBERS[letter])
        if letter == "S":
            of = self.operand("a", found)
            return None if of is None else f"{of}.shape[{self.rng.choice(['0', '-1'])}]"
        names = [name for name, value in self.known[0].items() if value.dtype in KINDS[letter]]
        if not names:
            return None
        return self.rng.choice(names if self.rng.random() < 0.5 else names[:4])


def is_usable(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.numel() <= 600 and result.ndim <= 4


def is_undefined(step: Step, values: Tensors, result: torch.Tensor) -> bool:
    """Return whether C leaves open what a call gives: a number beyond the type that it is cast to, or NaN, a median."""
    operands = [values[name] for name in step.operands]
    if ".median()" in step.text and not operands[0].numel():
        return not result.is_floating_point()
    if result.dtype not in INTEGERS and result.dtype != torch.bool:
        return False
    casts = re.search(r"\.(to|int|byte|long|type_as|copy_)\(|out\[", step.text) is not None
    limits = torch.iinfo(result.dtype) if result.dtype in INTEGERS else torch.iinfo(torch.int64)
    floats = [item.double() for item in operands if item.is_floating_point()]
    return casts and any(
        bool((~item.isfinite() | (item.trunc() < limits.min) | (item >= float(limits.max))).any()) for item in floats
    )


def problem(step: Step, values: Tensors, found: torch.Tensor) -> str | None:
    """Return what is wrong with the value of a call, given those of its arguments."""
    wanted = step.apply({name: value.clone() for name, value in values.items()})
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return difference(found, wanted, wanted, [])
    operands = [values[name] for name in step.operands]
    if "alpha=0.0" in step.text and "mm(" in step.text and not all(x.isfinite().all() for x in operands):
        return None  # BLAS does not read matrices that are multiplied by 0
    if MATRIX_PRODUCTS.search(step.text) and any(not x.isfinite().any() for x in operands):
        return None  # ONNX Runtime multiplies by an infinite constant after the product, which the docs say
    if "multilabel_margin" in step.text and not operands[0].numel():
        return None  # torch does not set this number
    if "fft" in step.text and not all(x.isfinite().all() for x in operands):
        return None  # which of the results are NaN depends on the algorithm
    if EXTREMES.search(step.text) and any(x.isnan().any() for x in operands):
        # ONNX does not define the maximum of NaN, nor its place, which docs/kernel_library.md says.
        if not wanted.is_floating_point():
            return None
        found = torch.where(wanted.isnan(), wanted, found)
    if SQUARES.search(step.text) and any(map(squares_overflow, operands)):
        return None  # torch's kernel for CPUs adds squares of float32 as float64, those for GPUs do not
    if PRODUCTS.search(step.text) and any(depends_on_order(x, wanted.dtype) for x in operands):
        return None
    doubles = {name: value.double() if value.is_floating_point() else value for name, value in values.items()}
    try:
        exact = step.apply(doubles)
    except Exception:
        exact = wanted
    scale = [size(x, None if ADDING.search(step.text) else wanted.shape) for x in (wanted, *operands)]
    scale = scale if ADDING.search(step.text) or CANCELLING.search(step.text) else []
    if "cross" in step.text:  # a difference of products
        scale = [*scale, *(size(x) ** 2 for x in operands)]
    if NORMALIZING.search(step.text):
        scale = [*scale, *(size(x) / math.sqrt(1e-5) for x in operands)]
    if IN_PARTS.search(step.text):
        narrow = (x for x in operands if x.is_floating_point())
        scale = [*scale, *(size(x) * torch.finfo(x.dtype).eps / torch.finfo(wanted.dtype).eps for x in narrow)]
    if CONSTANT_POWERS.search(step.text) and wanted.is_floating_point():
        logarithms = (x.to(torch.complex128).log() for x in operands)
        scale = [*scale, *(size(wanted, wanted.shape) * size(x, wanted.shape) for x in logarithms)]
    if EXPONENTIALS_LESS_ONE.search(step.text):
        scale = [*scale, torch.ones(())]
    if wanted.dtype in (torch.float64, torch.complex128) and STEEP.search(step.text):
        # torch's own float64 is not exact: what it gives for arguments that differ by a rounding is as good.
        near = {name: x * (1 + 2**-52) if x.is_floating_point() or x.is_complex() else x for name, x in values.items()}
        exact = step.apply(near)
    return difference(found, wanted, exact, scale)


def size(x: torch.Tensor, shape: torch.Size | None = None) -> torch.Tensor:
    """Return the largest finite absolute value of a tensor, or that of each element, if it broadcasts to a shape."""
    finite = x.to(torch.complex128).abs().nan_to_num(0, 0, 0)
    if shape is not None and broadcasts(x.shape, shape):
        return finite.expand(shape)
    return finite.max() if finite.numel() else torch.zeros(())


def broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    return len(shape) <= len(to) and all(one in (1, other) for one, other in zip(shape[::-1], to[::-1], strict=False))


def squares_overflow(x: torch.Tensor) -> bool:
    """Return whether the square of some number of a tensor is beyond its type, but the number is not."""
    return x.is_floating_point() and bool((x.isfinite() & x.square().isinf()).any())


def depends_on_order(factors: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether some product of the numbers is too large or too small for a type."""
    if not dtype.is_floating_point and not dtype.is_complex:
        return False
    bits = factors.to(torch.complex128).abs().log2()
    bits = bits[bits.isfinite()]
    limits = torch.finfo(dtype)
    return bool(bits.clamp(min=0).sum() >= math.log2(limits.max) or bits.clamp(max=0).sum() <= math.log2(limits.tiny))


def difference(
    found: torch.Tensor, wanted: torch.Tensor, exact: torch.Tensor, scale: Sequence[torch.Tensor], slack: float = 16
) -> str | None:
    """Return in which way a value differs from torch's by more than `exact`, in float64, differs from that."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype}{list(found.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    modulus: torch.Tensor | int = 0
    is_complex = wanted.is_complex()
    if is_complex:
        modulus = wanted.abs().double().nan_to_num(0, 0, 0).unsqueeze(-1)
        # C has one complex infinity: which parts are infinite or NaN depends on the algorithm.
        found = torch.where(found.isfinite() | wanted.isfinite(), found, wanted)
        found, wanted = torch.view_as_real(found), torch.view_as_real(wanted.resolve_conj())
        exact = torch.view_as_real(exact.resolve_conj()) if exact.is_complex() else wanted
    if not wanted.is_floating_point():
        wrong = found != wanted
    else:
        exact = exact.double() if exact.shape == wanted.shape else wanted.double()
        eps, got, want = torch.finfo(wanted.dtype).eps, found.double(), wanted.double()
        allowed = 10 * (want - exact).abs().nan_to_num(0, 0, 0) + slack * eps * want.abs()
        allowed = allowed + slack * (torch.finfo(wanted.dtype).smallest_normal + eps * modulus)
        for item in scale:
            allowed = allowed + slack * eps * (item.unsqueeze(-1) if is_complex and item.ndim else item)
        wrong = (got != want) & ~(got.isnan() & want.isnan()) & ~((got - want).abs() <= allowed)
        # torch's own kernels give NaN for some infinities, for which those of float64 do not.
        wrong = wrong & ~(want.isnan() & (got == exact))
        # The number is nearly too large for the type.
        wrong = wrong & ~((got == want.sign() * math.inf) & (want.abs() > torch.finfo(wanted.dtype).max / 2))
    if not wrong.any():
        return None
    place = tuple(wrong.nonzero()[0].tolist())
    return f"{found[place].item()!r} instead of {wanted[place].item()!r} at {list(place)} of {list(wanted.shape)}"


@dataclass
class Outcome:
    """What came of a program: a word for it, and the call that is wrong, or the index of the one that is refused."""

    kind: str
    step: Step | None = None
    detail: str = ""
    sample: int = 0
    values: Tensors = field(default_factory=dict)
    line: int | None = None
    stops: bool = False


def outcomes(program: Program) -> list[Outcome]:
    """Return what is wrong with the exported model, by call; or that it is refused."""
    try:
        session = program.session()
    except Exception as error:
        kind = "refused" if isinstance(error, pyops.errors.PyopsError) else "unclear"
        return [Outcome(kind, detail=explained(error), line=line(program, error), stops=True)]
    found: dict[str, Outcome] = {}
    for index, sample in enumerate(program.samples):
        try:
            values = program.run(session, sample)
        except Exception as error:
            if same_sizes(sample, program.samples[0]):
                place = line(program, error)
                return [Outcome("does not run", detail=explained(error), sample=index, line=place, stops=True)]
            found.setdefault("", Outcome("refused at other sizes", detail=explained(error), sample=index))
            continue
        if program.whole:
            found |= {} if found else compared_whole(program, index, values)
            continue
        values = {**sample, **values}
        for step in (step for step in program.steps if step.name in values):
            detail = problem(step, values, values[step.name]) if step.name not in found else None
            if detail is not None and is_wrong(program, step, values, detail):
                found[step.name] = Outcome("wrong", step, detail, index, values)
    return list(found.values())


def is_wrong(program: Program, step: Step, values: Tensors, detail: str) -> bool:
    """Return whether a call that differs from torch also differs if float16 is not rounded, except for the result.

    ONNX Runtime computes float16 as float32, and does not round between some calls.
    """
    wide_step = widened(step)
    halves = {name: x for name, x in values.items() if x.dtype == torch.float16}
    if "instead of torch." in detail or (halves.keys().isdisjoint((step.name, *step.operands)) and wide_step == step):
        return True
    made = [item for item in program.steps if item.name in halves]
    wide = {**values, **{name: x.float() for name, x in halves.items()}}
    for _ in range(MOST_UNROUNDED):
        wide |= {item.name: widened(item).apply(dict(wide)) for item in made}
        wanted = wide_step.apply({**values, **{item.name: wide[item.name] for item in made}})
        found, rounded = values[step.name], step.apply(values)
        if wanted.is_floating_point():
            found, wanted, rounded = found.half(), wanted.half(), rounded.half()
        scale = [size(x) for x in (wanted, *(values[name] for name in step.operands))]
        if difference(found, wanted, rounded, scale) is None:
            return False
    return True


def widened(step: Step) -> Step:
    """Return a call with float32 in place of float16."""
    return replace(step, text=step.text.replace("float16", "float32").replace(".half()", ".float()"))


def line(program: Program, error: BaseException) -> int | None:
    """Return the index of the call that an error names, by its line or by a node."""
    texts: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        texts.append(str(cause))
        cause = cause.__cause__
    found = re.search(rf'{FILE}(?::|", line )(\d+)', "\n".join(texts))
    node = re.search(r"(?:node \(|name '|name:')([^')]+)", str(error), re.IGNORECASE)
    if not found and node and program.exported:
        nodes = (item for item in program.exported.model_proto.graph.node if item.name == node[1])
        traces = "".join(entry.value for item in nodes for entry in item.metadata_props)
        found = re.search(rf'{FILE}", line (\d+)', traces)
    place = int(found[1]) - 2 if found else -1
    return place if 0 <= place < len(program.steps) else None


def explained(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500].replace("\n", " ")


def same_sizes(sample: Tensors, other: Tensors) -> bool:
    return all(sample[name].shape == other[name].shape for name in sample)


def compared_whole(program: Program, index: int, values: Tensors) -> dict[str, Outcome]:
    """Compare the results of a program that does not return every value."""
    sample = program.samples[index]
    wanted = program.known[index]
    try:
        exact = program.computed({n: v.double() if v.is_floating_point() else v for n, v in sample.items()})
    except Exception:  # torch refuses some mixes of types
        exact = wanted
    for name, found in values.items():
        ancestors = {name}
        for step in reversed(program.steps):
            ancestors |= set(step.operands) if step.name in ancestors else set()
        exactly = not any(wanted[item].is_floating_point() or wanted[item].is_complex() for item in ancestors)
        detail = difference(found, wanted[name], exact[name], [size(wanted[item]) for item in ancestors], 2**12)
        if detail is not None and (exactly or "instead of torch." in detail):
            step = next(step for step in program.steps if step.name == name)
            return {name: Outcome("wrong", step, detail, index)}
    return {}


def shrunk(program: Program, outcome: Outcome) -> str:
    """Return the fewest lines that show what is wrong."""
    if outcome.step is None:
        return outcome.detail
    for candidate in (part(program, [outcome.step], outcome), part(program, closure(program.steps, outcome.step.name))):
        for now in outcomes(candidate):
            if now.kind == outcome.kind:
                given = ", ".join(f"{name}: {spelled(value)}" for name, value in candidate.samples[now.sample].items())
                sizes = " with dynamic sizes" if candidate.dynamic else ""
                lines = "\n    ".join(map(str, candidate.steps))
                return f"\n    {lines}  # {given}{sizes}\n    {now.detail}"
    return f"\n    {outcome.step} in the whole program\n{program}\n    sample {outcome.sample}: {outcome.detail}"


def spelled(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} {value.flatten()[:6].tolist()}"


def first_failing(program: Program, steps: list[Step]) -> int:
    """Return how many of the first calls suffice to fail."""
    low, high = 0, len(steps)
    while high - low > 1:
        middle = (low + high) // 2
        first = steps[:middle]
        fails = any(item.stops for item in outcomes(replace(program, steps=first, results=[s.name for s in first])))
        low, high = (low, middle) if fails else (middle, high)
    return high


def closure(steps: list[Step], name: str) -> list[Step]:
    needed, kept = {name}, []
    for step in reversed(steps):
        if step.name in needed:
            needed |= set(step.operands)
            kept.insert(0, step)
    return kept


def part(program: Program, steps: list[Step], outcome: Outcome | None = None) -> Program:
    """Return a program of some of the calls; what other calls compute is given to it."""
    made = {step.name for step in steps}
    needed = [name for name in dict.fromkeys(name for step in steps for name in step.operands) if name not in made]
    computed = list(program.known)
    if outcome is not None and outcome.values:
        computed[outcome.sample] = {**computed[outcome.sample], **outcome.values}
    samples = [{name: values[name].resolve_conj().contiguous() for name in needed} for values in computed]
    return replace(program, steps=steps, samples=samples, whole=False, results=[step.name for step in steps])


class Findings:
    """What was found wrong or refused: a text for each, and how many calls had which outcome."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.counts = Counter[str]()
        self.refused: set[str] = set()
        self.shown: set[str] = set()

    def add(self, seed: int) -> None:
        """Check a program; a call that is refused is left out of it, and of the ones that follow."""
        program = Generator(seed).program()
        self.counts += Counter(programs=1, calls=len(program.steps))
        program = self.without(program, set())
        refused = {step.name for step in program.steps if step.kind(program.known[0]) in self.refused}
        program = self.without(program, refused)
        while program.steps:
            found = outcomes(program)
            stopped = next((item for item in found if item.stops), None)
            if stopped is None:
                for item in found:
                    self.show(seed, program, item)
                self.counts["calls compared"] += 0 if program.whole else len(program.steps)
                return
            index = stopped.line if stopped.line is not None else first_failing(program, program.steps) - 1
            step = program.steps[index]
            self.show(seed, program, replace(stopped, step=step))
            self.refused.add(step.kind(program.known[0]))
            program = self.without(program, {step.name})

    def show(self, seed: int, program: Program, outcome: Outcome) -> None:
        """Count an outcome, and shrink it unless the like has been shown."""
        self.counts[outcome.kind] += 1
        message = re.sub(r"'[^']*'|\([^)]*\)|[\d.]+", "", outcome.detail)
        kind = message if outcome.kind != "wrong" else outcome.step.kind(program.known[0]) if outcome.step else ""
        known = f"{outcome.kind}: {kind}" in self.shown
        self.shown.add(f"{outcome.kind}: {kind}")
        text = f"{outcome.step or outcome.detail[:80]}  # as before" if known else shrunk(program, outcome)
        self.texts.append(f"{outcome.kind}, seed {seed}: {text}")

    def without(self, program: Program, names: set[str]) -> Program:
        """Return the program without calls, and without those that need them."""
        lost = set(names)
        for step in program.steps:
            lost |= {step.name} if lost & set(step.operands) else set()
        self.counts += Counter({"calls left out": len(lost)})
        steps = [step for step in program.steps if step.name not in lost]
        results = [name for name in program.results if name not in lost] or [item.name for item in steps[-1:]]
        left = replace(program, steps=steps, results=results)
        failing = left.failing()
        return left if failing is None else self.without(left, {failing})


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    findings = Findings()
    for seed in range(first, first + count):
        findings.add(seed)
        print(*findings.texts, sep="\n", end="\n" if findings.texts else "", flush=True)
        findings.texts.clear()
    print(", ".join(f"{number} {kind}" for kind, number in sorted(findings.counts.items())))


if __name__ == "__main__":
    main()
