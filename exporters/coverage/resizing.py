"""The same call at another size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .._torch_private import clone_tensors
from .samples import Sample

Tensors = tuple[torch.Tensor, ...]


def dynamic_shapes(sample: Sample) -> Any:
    """Every dimension of every tensor dynamic, as far as torch finds that it can be."""
    auto = torch.export.Dim.AUTO
    return (tuple(dict.fromkeys(range(tensor.dim()), auto) for tensor in sample.tensors),)


def resized(sample: Sample, program: torch.export.ExportedProgram) -> Tensors | None:
    """Arguments of another size that the exported program admits and that torch takes; None if none is found.

    Dimensions shrink by one, which keeps a positive definite or triangular matrix what it is, or else grow by
    one, which keeps indices in range; where neither goes for all, the dimensions before the last two alone.

    Parameters
    ----------
    sample : Sample
    program : torch.export.ExportedProgram
        Of the sample, with `dynamic_shapes`.
    """
    for sizes in _other_sizes(program):
        tensors = tuple(map(_cut_or_tiled, sample.tensors, sizes))
        if all(map(_same_shape, tensors, sample.tensors)):
            continue
        try:
            sample.module(*clone_tensors(tensors))
        except Exception:  # whatever torch has against this size
            continue
        return tensors
    return None


def _other_sizes(program: torch.export.ExportedProgram) -> Iterator[list[list[int]]]:
    """Sizes of every input, those that are the more likely to go first."""
    inputs = set(program.graph_signature.user_inputs)
    shapes = [node.meta["val"].shape for node in program.graph.nodes if node.name in inputs]
    for last, step in ((None, -1), (None, 1), (-2, -1), (-2, 1)):
        free = [size for shape in shapes for size in shape[:last] if _is_free(size)]
        chosen = {size.node.expr: max(2, size.node.hint + step) for size in free}
        known = {size.node.expr: size.node.hint for shape in shapes for size in shape if _is_free(size)}
        yield [[_evaluated(size, {**known, **chosen}) for size in shape] for shape in shapes]


def _is_free(size: Any) -> bool:
    """Whether it is a symbol, not a number or an expression of symbols."""
    return isinstance(size, torch.SymInt) and bool(size.node.expr.is_Symbol)


def _evaluated(size: Any, values: Mapping[Any, int]) -> int:
    if isinstance(size, int):
        return size
    result = size.node.expr.subs(values)
    return int(result) if result.is_number else int(size.node.hint)


def _cut_or_tiled(tensor: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    for dim, size in enumerate(sizes):
        tensor = tensor.index_select(dim, torch.arange(size) % tensor.shape[dim])
    return tensor.clone()


def _same_shape(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape
