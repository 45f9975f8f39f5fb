"""Checks of arguments that torch's own kernels trust: indices beyond a tensor's memory, endless loops, divisions.

torch's Python functions make such checks, its operators do not, and a model file names operators. What is checked
follows from an operator's schema, by the kinds of arguments in it, so that it also holds for operators that later
releases add. Every check takes the arguments of a call by name and raises InputError. Tensors that torch writes to
despite the operator's schema are copied, because they may be the model's own memory or the caller's. Operators that
need more than a short check, and that `pyops.kernels` computes, are not allowed in a model (`allowed_operators`).
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from typing import Any

import torch

from pyops.errors import InputError

Values = dict[str, Any]


def check(schema: str, values: Values) -> None:
    """Check the arguments of a call of the operator whose schema torch spells so.

    Raises
    ------
    InputError
        The call would read or write beyond one of its tensors, end the process, or never return.
    """
    for validate in _checks_of(schema):
        with contextlib.suppress(KeyError):  # torch reports a missing argument
            validate(values)


@functools.cache
def _checks_of(schema: str) -> list[Callable[[Values], None]]:
    arguments = schema.partition(" -> ")[0]
    integers = re.findall(r"\b(?:Sym)?[iI]nt(?:\[\d*\])?\?* (\w+)", arguments)
    bounds = [(name, *limits) for name in integers for kind, *limits in _BOUNDS if re.fullmatch(kind, name)]
    checks = [found for kind, found in _CHECKS if re.search(kind, arguments)]
    return [*(functools.partial(_bounded, *bound) for bound in bounds), *checks]


def _require(fits: bool, expected: str) -> None:
    if not fits:
        raise InputError(f"expected {expected}")


def _within(tensor: torch.Tensor, low: int, high: int, what: str) -> None:
    _require(not tensor.numel() or (int(tensor.min()) >= low and int(tensor.max()) <= high), f"{what} in {low}..{high}")


def _ascending(offsets: torch.Tensor, high: int, what: str) -> None:
    _within(offsets, 0, high, what)
    _require(bool((offsets.diff() >= 0).all()), f"{what} in ascending order")


def _bounded(name: str, low: int, high: int, values: Values) -> None:
    for item in values[name] if isinstance(values[name], list) else [values[name]]:
        _require(not isinstance(item, int) or low <= item <= high, f"{name} in {low}..{high}, not {item}")


def _attention(values: Values) -> None:
    key, value = values["key"].shape, values["value"].shape
    _require(key[-2:-1] == value[-2:-1], "a key and a value of the same length")
    if values.get("enable_gqa"):  # torch divides by their number
        _require(0 not in key[-3:-2] + value[-3:-2], "at least one head in key and value")


def _average_pool(values: Values) -> None:
    # The least integer divided by -1 ends the process, and a sum may be the least integer.
    _require(
        values["self"].is_floating_point() or values.get("divisor_override") != -1,
        "floats, or a divisor_override other than -1",
    )


def _batch_norm(values: Values) -> None:
    x = values["input"]
    _require(x.dim() >= 2, f"an input of two dimensions or more, not {x.dim()}")
    for name in ("weight", "bias", "running_mean", "running_var"):
        tensor = values.get(name)
        _require(
            tensor is None or tuple(tensor.shape) == (x.shape[1],),
            f"{name} of shape ({x.shape[1]},), one number for each channel",
        )
    learns = values.get("training", values.get("use_input_stats", True))
    for name in ("running_mean", "running_var"):
        _require(bool(learns) or values.get(name) is not None, f"{name}, which is required outside training")
        if values.get(name) is not None:
            # torch writes to them in training.
            values[name] = values[name].clone()


def _binomial(values: Values) -> None:
    _require(not bool(values["count"].isnan().any()), "a count without NaN")


def _covariance(values: Values) -> None:
    # With weights and a single observation, torch subtracts the mean in place.
    values["self"] = values["self"].clone()


def _divide(values: Values) -> None:
    least = _least(values)
    if least is not None and values.get("rounding_mode") == "trunc":
        fits = (torch.as_tensor(values["self"]) != least) | (torch.as_tensor(values["other"]) != -1)
        _require(bool(fits.all()), f"no division of {least} by -1")


def _least(values: Values) -> int | None:
    # The integer whose quotient by -1 does not fit, which ends the process; with fewer bits, torch divides in int32.
    dtype = torch.result_type(values["self"], values["other"])
    return torch.iinfo(dtype).min if dtype in (torch.int32, torch.int64) else None


def _eigenvalues(values: Values) -> None:
    # LAPACK continues with a matrix that it rejects.
    for item in filter(torch.is_tensor, values.values()):
        _require(bool(item.isfinite().all()), "finite numbers; find where others come from, with numpy.isfinite")


def _embedding_bag(values: Values) -> None:
    indices, offsets = values["indices"], values["offsets"]
    _require(values["weight"].dim() == 2, "a weight of two dimensions")
    _require(indices.dim() == 1 and offsets.dim() == 1, "indices and offsets of one dimension")
    _require(values.get("mode", 0) in (0, 1, 2), "a mode of 0, 1 or 2")
    _within(indices, 0, values["weight"].shape[0] - 1, "indices")
    _ascending(offsets, indices.numel(), "offsets")


def _grouped_mm(values: Values) -> None:
    left, right, offsets = values["self"], values["mat2"], values.get("offs")
    if offsets is not None and left.dim() in (2, 3) and right.dim() in (2, 3):
        size = right.shape[1] if left.dim() == 3 else left.shape[0 if right.dim() == 3 else 1]
        _ascending(offsets, size, "offs")


def _lcm(values: Values) -> None:
    # torch divides by a common divisor, which may be -1.
    least = _least(values)
    for name in ("self", "other"):
        _require(least is None or bool((values[name] != least).all()), f"{name} above {least}")


def _ldl(values: Values) -> None:
    pivots, size = values["pivots"], values["LD"].shape[-1]
    _require(pivots.dim() >= 1 and pivots.shape[-1] == size, f"{size} pivots")
    _within(pivots.abs(), 1, size, "pivots")
    for row in pivots.reshape(-1, max(size, 1)).tolist():
        while row:
            # A block of two rows is marked by the same negative number twice.
            first = row.pop(0)
            _require(first > 0 or (bool(row) and row.pop(0) == first), "negative pivots in pairs")


def _lu(values: Values) -> None:
    # The operators have different names for the same arguments.
    matrix, pivots = (
        values[name if name in values else other] for name, other in (("LU_data", "LU"), ("LU_pivots", "pivots"))
    )
    _require(matrix.dim() >= 2, "a matrix")
    expected = (*matrix.shape[:-2], min(matrix.shape[-2:]))
    _require(tuple(pivots.shape) == expected, f"pivots of shape {expected}")
    _within(pivots, 1, matrix.shape[-2], "pivots")


def _pack_padded_sequence(values: Values) -> None:
    x = values["input"]
    _require(x.dim() >= 2, "an input of two dimensions or more")
    _within(values["lengths"], 1, x.shape[1 if values.get("batch_first") else 0], "lengths")


def _orders(summed: Callable[[torch.Tensor], torch.Tensor], values: Values) -> None:
    # torch computes the polynomials of all lower orders too, until one is NaN, where it has no closed form.
    x, n = torch.broadcast_tensors(*(torch.as_tensor(values[name], dtype=torch.float64) for name in ("x", "n")))
    _require(float(n[summed(x) & (n > 0) & (n < 2**63)].sum()) <= 2**30, "orders n with a sum of at most 2**30")


def _near(x: torch.Tensor) -> torch.Tensor:
    return (x != 0) & (x.abs() < 1e-7)


def _packed(values: Values) -> None:
    data, sizes = values["data"], values["batch_sizes"].tolist()
    _require(
        data.dim() >= 1 and bool(sizes) and sizes == sorted(sizes, reverse=True) and sizes[-1] > 0,
        "positive batch_sizes in descending order",
    )
    _require(sum(sizes) == data.shape[0], f"batch_sizes with a sum of {data.shape[0]}, the rows of data")


def _pdist(values: Values) -> None:
    _require(values["self"].dim() == 2, "a matrix")


def _recurrent(values: Values) -> None:
    layers, weights = values["num_layers"], values["params"]
    directions = 2 if values.get("bidirectional") else 1
    each = 4 if values["has_biases"] else 2
    # An LSTM with a projection has one more per layer and direction.
    _require(
        len(weights) in (layers * directions * each, layers * directions * (each + 1)),
        f"{layers * directions * each} params for {layers} layers, not {len(weights)}",
    )
    states = values["hx"] if isinstance(values["hx"], list) else [values["hx"]]
    _require(all(item.dim() in (2, 3) for item in states), "hx of two or three dimensions")


def _repeat_interleave(values: Values) -> None:
    # torch adds the repeats in int64, where the sum may wrap.
    repeats = torch.as_tensor(values["repeats"])
    _require(float(repeats.sum(dtype=torch.float64)) < 2**62, "repeats with a sum below 2**62")


def _upsample(values: Values) -> None:
    # Overloads with scales alone name the tensor differently, and are skipped: their sizes follow from the scales.
    x, sizes = values["self"], values["output_size"]
    _require(isinstance(sizes, list) and x.dim() == len(sizes) + 2, f"an output_size of {x.dim() - 2} numbers")
    names = ["scales"] if len(sizes) == 1 else ["scales_d", "scales_h", "scales_w"][-len(sizes) :]
    for size, given, name in zip(sizes, x.shape[2:], names, strict=True):
        scale = values.get(name)
        # torch divides by the scale to find the position in the input, which must be inside it.
        _require(scale is None or size <= given * scale, f"{name} of at least {size}/{given}, or None")


def _weight_norm(values: Values) -> None:
    v, g, dim = values["v"], values["g"], values.get("dim", 0)
    _require(v.numel() > 0 and v.dim() > 0 and g.numel() > 0, "tensors that are not empty, and v with dimensions")
    if dim in (0, v.dim() - 1):  # else torch broadcasts g
        _require(g.numel() == v.shape[dim], f"{v.shape[dim]} numbers in g, not {g.numel()}")


# By patterns of the names of integers: sizes and counts, with the numbers for which torch's kernels return.
_BOUNDS = (
    # A kernel visits every place of a window, also those outside of the tensor.
    (r"kernel\w*|window\w*", -(2**24), 2**24),
    # torch multiplies them by one another.
    (r"dilation|n(um)?_\w+|\w*(padding|groups?|bins|steps|sections|chunks|counts?|factor)", -(2**31), 2**31),
    # More than any memory holds.
    (r"size|(split_)?sizes|s|N|C|HxW|\w*(shape|lengths?)", -(2**40), 2**40),
    # torch negates n until it is positive, which it never is for the smallest int64.
    (r"n", 1 - 2**63, 2**63 - 1),
    # torch searches for the next larger number in an endless loop, and here there is none.
    (r"from", -(2**63), 2**63 - 2),
)

# By patterns of what torch spells: the operator's name where its arguments do not tell what it does with them.
_CHECKS: tuple[tuple[str, Callable[[Values], None]], ...] = (
    (r"(::|_)eig(vals)?[.(]", _eigenvalues),
    (r"^aten::\w+_legendre_.* n\b", functools.partial(_orders, lambda x: (x.abs() < 1.001) & (x.abs() != 1))),
    (r"^aten::\w+_laguerre_.* n\b", functools.partial(_orders, lambda x: (x > -0.001) & (x != 0) & (x < torch.inf))),
    (r"^aten::special_chebyshev_.* n\b", functools.partial(_orders, lambda x: _near(x.abs() - 1))),
    (r"^aten::\w+_shifted_chebyshev_.* n\b", functools.partial(_orders, lambda x: _near(x) | _near(x - 1))),
    (r"^aten::.*Tensor input,.* float momentum,", _batch_norm),
    (r"^aten::.*Tensor\[\] params, bool has_biases, \w+ num_layers,", _recurrent),
    (r"^aten::.*Tensor (LU|LU_data), Tensor (LU_)?pivots\b", _lu),
    (r"^aten::.*Tensor LD, Tensor pivots\b", _ldl),
    (r"^aten::.*\] output_size,.* float\? scales", _upsample),
    (r"^aten::.*Tensor v, Tensor g, int dim\b", _weight_norm),
    (r"^aten::.*Tensor\? offs\b", _grouped_mm),
    (r"^aten::.*Tensor input, Tensor lengths\b", _pack_padded_sequence),
    (r"^aten::.*Tensor data, Tensor batch_sizes\b", _packed),
    # torch returns uninitialized memory for other modes.
    (r"^aten::.*int interpolation_mode\b", functools.partial(_bounded, "interpolation_mode", 0, 2)),
    (r"^aten::.*int padding_mode\b", functools.partial(_bounded, "padding_mode", 0, 2)),
    (r"^aten::_pdist_forward\(", _pdist),
    (r"^aten::.*int\? divisor_override\b", _average_pool),
    (r"^aten::.*Tensor count\b", _binomial),
    (r"^aten::.*Tensor\? [af]weights\b", _covariance),
    (r"^aten::.*str\? rounding_mode\b", _divide),
    (r"^aten::.*Tensor indices, Tensor offsets\b", _embedding_bag),
    (r"^aten::lcm\(", _lcm),
    (r"^aten::.*(Tensor|[iI]nt) repeats\b", _repeat_interleave),
    (r"^aten::.*Tensor key, Tensor value\b", _attention),
)
