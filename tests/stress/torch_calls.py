"""The calls that random programs of torch's operators are made of, with letters in place of tensors and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

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
