"""A single call as a model, run at its own size and at others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .private.trees import clone_tensors, flatten, replace_leaves, tensor_leaves

Tensors = tuple[torch.Tensor, ...]
Shapes = tuple[tuple[int, ...], ...]


class SingleCall(torch.nn.Module):
    """A model that makes one call of a function: the tensors in its arguments are inputs, all else is constant."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self._function, self._arguments = function, (args, dict(kwargs))
        self.tensors = tuple(tensor_leaves(self._arguments))
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Call the function with `tensors` in place of the tensors in its arguments."""
        args, kwargs = replace_leaves(self._arguments, tensors)
        return self._function(*args, **kwargs)

    def other_sizes(self) -> Iterator[Tensors]:
        """Yield tensors of other sizes for which the call returns as many tensors, the largest changes first."""
        outputs = _outputs(self, self.tensors)
        for shapes in dict.fromkeys(_other_shapes(tuple(tuple(tensor.shape) for tensor in self.tensors))):
            try:
                resized = tuple(map(_cut_or_tiled, self.tensors, shapes))
            except RuntimeError:  # sparse tensors, among others
                continue
            if outputs and _outputs(self, resized) == outputs:
                yield resized

    def resized(self, program: torch.export.ExportedProgram, tries: int | None = None) -> Tensors | None:
        """Return tensors of another size that both the call and a program with dynamic dimensions accept, or None."""
        captured = program.module()
        candidates = itertools.islice(self.other_sizes(), tries)
        return next((tensors for tensors in candidates if _outputs(captured, tensors) is not None), None)


def _outputs(module: torch.nn.Module, tensors: Tensors) -> int | None:
    try:
        with torch.no_grad():
            return len(flatten(module(*clone_tensors(tensors))))
    except Exception:  # torch, or a guard of an exported program, rejects this size
        return None


def _other_shapes(shapes: Shapes) -> Iterator[Shapes]:
    """Yield other shapes for the tensors of a call, those that change more dimensions first.

    Dimensions shrink by one, which keeps indices in range and a matrix positive definite or triangular,
    or grow by one: all of them, all before the last two, all of one size, all at one position, or a single one. A
    dimension of one stays, because it is broadcast, and none becomes one, because torch.export makes it a constant.
    """
    places = {(index, dim): size for index, shape in enumerate(shapes) for dim, size in enumerate(shape)}
    groups = [set(places), {(index, dim) for index, dim in places if dim < len(shapes[index]) - 2}]
    groups += [{at for at in places if places[at] == size} for size in sorted(set(places.values()))]
    groups += [{at for at in places if at[1] == dim} for dim in sorted({dim for _, dim in places})]
    groups += [{at} for at in places]
    for group, step in itertools.product(groups, (-1, 1)):
        sizes = {at: max(2, size + step) if at in group and size > 1 else size for at, size in places.items()}
        if sizes != places:
            yield tuple(tuple(sizes[index, dim] for dim in range(len(shape))) for index, shape in enumerate(shapes))


def _cut_or_tiled(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    for dim, size in enumerate(shape):
        tensor = tensor.index_select(dim, torch.arange(size) % tensor.shape[dim])
    return tensor.clone()
