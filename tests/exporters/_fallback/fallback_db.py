"""Models with an operator that torch's exporter lacks, one row for each kind of call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812


@dataclass(frozen=True)
class Row:
    """A model.

    Attributes
    ----------
    fallbacks : tuple of str
        The operators that fall back.
    others : tuple
        Arguments of another size, for an export in which every dimension is dynamic; none where there is none.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    fallbacks: tuple[str, ...]
    others: tuple[Any, ...] = ()


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


def square(size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return rand(size, size, dtype=dtype) + size * torch.eye(size, dtype=dtype)


def branches(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 1, lambda y: torch.lgamma(y), lambda y: torch.erfinv(y), (x,))


ROWS = [
    Row("one tensor", torch.lgamma, (rand(3),), ("aten::lgamma",), (rand(5),)),
    Row("decomposed", torch.linalg.inv, (square(3),), ("aten::linalg_inv",), (square(4),)),
    Row("several outputs", torch.linalg.qr, (rand(3, 3),), ("aten::linalg_qr",), (rand(5, 5),)),
    Row("one of them used", lambda x: torch.median(x, 0)[1], (rand(5, 2),), ("aten::median.dim",), (rand(7, 3),)),
    Row("nested outputs", lambda x: torch.histogramdd(x, [2, 3]), (rand(4, 2),), ("aten::histogramdd",)),
    Row("a list of one", lambda x: torch.special.i1(x).split([3]), (rand(3),), ("aten::special_i1",)),
    Row("a list of tensors", lambda x, y: torch.cartesian_prod(x, y), (rand(2), rand(3)), ()),
    Row("a str", lambda x: torch.linalg.qr(x, mode="r")[1], (rand(3, 3),), ("aten::linalg_qr",), (rand(4, 4),)),
    Row("a dtype", lambda x: torch.cumprod(x, 0, dtype=torch.float64), (rand(3),), ("aten::cumprod",), (rand(5),)),
    Row("a number that is no JSON", lambda x: torch.cdist(x, x, p=torch.inf), (rand(3, 2),), ("aten::cdist",)),
    Row(
        "a symbolic size",
        lambda x: torch.linalg.vander(x, N=x.shape[0]),
        (rand(3),),
        ("aten::linalg_vander",),
        (rand(5),),
    ),
    Row("complex outputs", torch.linalg.eigvals, (square(3),), ("aten::linalg_eigvals",), (square(4),)),
    Row("complex inputs", torch.linalg.inv, (square(3, torch.complex64),), ("aten::linalg_inv",)),
    Row(
        "complex in between",
        lambda x: torch.linalg.inv(torch.linalg.eig(x)[1]).abs(),
        (square(3),),
        ("aten::linalg_eig", "aten::linalg_inv"),
        (square(4),),
    ),
    Row(
        "a run-time shape",
        lambda x: torch.masked_select(x, x > 0.3) * 2,
        (rand(9),),
        ("aten::masked_select",),
        (rand(12),),
    ),
    Row("branches", branches, (rand(3),), ("aten::lgamma", "aten::erfinv"), (rand(3) / 9,)),
    Row("training", lambda x: F.rrelu(x, training=True), (rand(3),), ("aten::rrelu",)),
    Row("int64", lambda x: torch.gcd(x, x + 2), (torch.arange(4),), ("aten::gcd",), (torch.arange(6),)),
    Row("float16", lambda x: torch.special.i0e(x), (rand(3, dtype=torch.float16),), ("aten::special_i0e",)),
    Row("bfloat16", lambda x: torch.lgamma(x), (rand(3, dtype=torch.bfloat16),), ("aten::lgamma",)),
    Row("bool", lambda x: torch.masked_select(x, x), (rand(3) > 0.5,), ("aten::masked_select",)),
    Row("without tensors", lambda x: x[torch.tril_indices(3, 3)[0]], (rand(3),), ()),
    Row("covariance", torch.cov, (rand(2, 5),), ("aten::cov",), (rand(3, 7),)),
    Row(
        "weighted covariance",
        lambda x, w: torch.cov(x, aweights=w),
        (rand(2, 5), rand(5, dtype=torch.float64)),
        ("aten::cov",),
        (rand(3, 7), rand(7, dtype=torch.float64)),
    ),
    Row("one-hot", lambda x: F.one_hot(x), (torch.arange(3),), ("aten::one_hot",), (torch.arange(5),)),
    Row("one-hot by name", lambda x: F.one_hot(input=x), (torch.arange(3),), ("aten::one_hot",)),
    Row("least squares", lambda x: torch.linalg.lstsq(x, x)[0], (square(3),), ("aten::linalg_lstsq",)),
    Row("combinations", lambda x: torch.combinations(x, 3), (rand(5),), ("aten::combinations",), (rand(7),)),
    Row("more combinations", lambda x: torch.combinations(x, 2, True), (rand(3),), ("aten::combinations",), (rand(4),)),
    Row("factors", lambda x: x.geqrf(), (rand(4, 3),), ("aten::geqrf",), (rand(2, 5),)),
    Row("complex factors", torch.geqrf, (square(3, torch.complex64),), ("aten::geqrf",), (square(4, torch.complex64),)),
    Row(
        "a start in a tensor",
        lambda x, start: torch.narrow(x, 1, start, 2).mul_(2) + torch.narrow(x, 1, 0, 2),
        (rand(2, 4), torch.tensor(-3)),
        (),
        (rand(2, 4), torch.tensor(2)),
    ),
    Row(
        "a start by name",
        lambda x, start: torch.narrow(input=x, dim=1, start=start, length=2),
        (rand(2, 4), torch.tensor(-3)),
        (),
    ),
    Row("a hash", lambda x: torch.hash_tensor(x, 1), (rand(4, 3),), ("aten::hash_tensor",)),
    Row("a histogram", lambda x: torch.histogram(x, 4), (rand(4, 3),), ("aten::histogram.bin_ct",), (rand(2, 5),)),
    Row("a histogram by name", lambda x: torch.histogram(input=x, bins=4), (rand(9),), ("aten::histogram.bin_ct",)),
    Row("its edges", torch.histogram, (rand(9), torch.arange(4.0)), ("aten::histogram.bins_tensor",)),
    Row(
        "complex32",
        lambda x: torch.view_as_real(torch.masked_select(torch.complex(x, -x), x > 0.3)),
        (rand(9, dtype=torch.float16),),
        ("aten::masked_select",),
        (rand(12, dtype=torch.float16),),
    ),
    Row(
        "complex sizes",
        lambda x: torch.istft(x, 10, window=torch.ones(10)),
        (rand(6, 3, dtype=torch.complex64),),
        ("aten::istft",),
        (rand(6, 4, dtype=torch.complex64),),
    ),
    Row("no elements", torch.linalg.inv, (rand(0, 3, 3),), ("aten::linalg_inv",)),
    Row("no dimensions", torch.lgamma, (torch.tensor(2.5),), ("aten::lgamma",)),
    Row("the same output twice", lambda x: (x.lgamma(),) * 2 + (x.lgamma().mT,), (rand(3, 2),), ("aten::lgamma",)),
    Row("two overloads", lambda x: (x.median(), x.median(0)[0]), (rand(5, 2),), ("aten::median", "aten::median.dim")),
    Row("equal", lambda x: torch.equal(x, x), (rand(3),), ()),
    Row("close", lambda x: torch.allclose(x, x + 1), (rand(3),), ()),
    Row("equal by name", lambda x: (torch.equal(x, other=x), x.equal(other=x + 1)), (rand(3),), ()),
    Row("close by name", lambda x: (torch.allclose(input=x, other=x), x.allclose(other=x + 1)), (rand(3),), ()),
    Row("Gaussian", lambda x, y: F.gaussian_nll_loss(x, y, y, full=True), (rand(3), rand(3)), ()),
    Row(
        "wide variances",
        lambda x, y: F.gaussian_nll_loss(x, 2 * x, y),
        (rand(3), rand(3, dtype=torch.float64)),
        (),
    ),
    Row(
        "one number and its variance",
        lambda x, y: F.gaussian_nll_loss(x, y, x.square()),
        (torch.tensor(-1.5, dtype=torch.float64), rand(4, 3)),
        (),
    ),
    Row("a variance", lambda x: F.gaussian_nll_loss(x, 2 * x, 0.5), (rand(3),), ()),
    Row("one variance a row", lambda x, y: F.gaussian_nll_loss(x, 2 * x, y), (rand(2, 3), rand(2)), ()),
]
