"""What counts as wrong in the value of a call that ONNX Runtime computed, judged by torch on the same arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import torch

from tests.stress.torch_generator import Program, Step, Tensors

MOST_UNROUNDED = 6  # calls in a row between which ONNX Runtime does not round

ADDING = re.compile(
    r"sum|mean|prod|std|var|norm|softmax|einsum|@|matmul|mm\(|dot|fft|dist|loss|linear|cosine|quantile"
    r"|trapz|cross|glu|pool|distance|bag|trace|outer|kron|diff"
)
"""Calls in which an error may be as large as the rounding of the largest number."""

CANCELLING = re.compile(
    r"lerp|addc|logaddexp|alpha|polar|elu|sigmoid|silu|hardswish|sin|cos|tan| / |% |//|fmod|remainder|\.angle"
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

IN_PARTS = re.compile(r"soft_margin|cosine_similarity|kl_div|with_logits")
"""Calls of which torch computes parts in the type of one argument, and not in that of the result."""

CONSTANT_POWERS = re.compile(r"\*\* (math|-?\d*\.\d)")
"""Calls whose exponent torch rounds to the type of the result in kernels for vectors, but not in what those leave."""

PRODUCTS = re.compile(r"\.(cum)?prod\(")

REMAINDERS = re.compile(r" % |fmod|remainder")

EXTREMES = re.compile(r"\.(max|min|amax|amin|aminmax|argmax|argmin|log_softmax)\(|'amax'")


def problem(step: Step, values: Tensors, found: torch.Tensor) -> str | None:
    """Return what is wrong with the value of a call, given those of its arguments."""
    wanted = step.apply({name: value.clone() for name, value in values.items()})
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return difference(found, wanted, wanted, [])
    operands = [values[name] for name in step.operands]
    if "alpha=0.0" in step.text and "mm(" in step.text and not all(x.isfinite().all() for x in operands):
        return None  # BLAS does not read matrices that are multiplied by 0
    if MATRIX_PRODUCTS.search(step.text) and any(x.isinf().any() and not x.isfinite().any() for x in operands):
        return None  # ONNX Runtime multiplies by an infinite constant after the product, which the docs say
    if "multilabel_margin" in step.text and not operands[0].numel():
        return None  # torch does not set this number
    if "fft" in step.text and any(map(sums_may_overflow, operands)):
        return None  # which of the results are infinite or NaN depends on the algorithm
    if EXTREMES.search(step.text) and any(x.isnan().any() for x in operands):
        # ONNX does not define the maximum of NaN, nor its place, which docs/kernel_library.md says.
        if not wanted.is_floating_point():
            return None
        found = torch.where(wanted.isnan(), wanted, found)
    if REMAINDERS.search(step.text) and any(is_subnormal(x).any() for x in operands):
        found = torch.where(wanted.isnan(), wanted, found)  # torch's kernels for vectors give NaN, others the remainder
    if SQUARES.search(step.text) and any(squares_overflow(x, wanted.dtype) for x in operands):
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
        ratios = [torch.finfo(x.dtype).eps / torch.finfo(wanted.dtype).eps for x in narrow]
        scale = [*scale, *(size(x) * ratio for x in (wanted, *operands) for ratio in ratios)]
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


def squares_overflow(x: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether the square of some number is beyond a type, or that of the tensor, but the number is not."""
    types = [item for item in (x.dtype, dtype) if x.is_floating_point() and item.is_floating_point]
    return any(bool((x.isfinite() & x.to(item).square().isinf()).any()) for item in types)


def sums_may_overflow(x: torch.Tensor) -> bool:
    """Return whether a sum of all numbers of a tensor, each as often as there are elements, may overflow or is NaN."""
    if not x.is_floating_point() and not x.is_complex():
        return False
    return not bool(x.to(torch.complex128).abs().sum() * x.numel() <= torch.finfo(x.dtype).max)


def is_subnormal(x: torch.Tensor) -> torch.Tensor:
    return (x != 0) & (x.abs() < torch.finfo(x.dtype).tiny) if x.is_floating_point() else torch.zeros(())


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
        wanted = wide_step.apply({**values, **{name: wide[name] for name in halves}})
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
