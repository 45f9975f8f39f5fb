"""Leaves of nested tuples, lists, dicts and registered classes, in the order of torch.export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from .guard import guarded


@guarded("torch.utils._pytree.tree_leaves")
def flatten(tree: Any) -> list[Any]:
    """Return the leaves."""
    return _pytree.tree_leaves(tree)


def present_leaves(tree: Any) -> list[Any]:
    """Return the leaves that are not None."""
    return [leaf for leaf in flatten(tree) if leaf is not None]


@guarded("torch.utils._pytree.tree_flatten_with_path")
def named_leaves(tree: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Return the leaves with their paths: ``("1", "mask")`` for ``tree[1]["mask"]``."""
    found, _ = _pytree.tree_flatten_with_path(tree)
    return [(tuple(str(key).strip(".[]'") for key in path), leaf) for path, leaf in found]


@guarded("torch.utils._pytree.tree_unflatten")
def unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    """Return the structure of `tree` with other leaves."""
    return _pytree.tree_unflatten(list(leaves), _pytree.tree_structure(tree))


def is_tensor(leaf: Any) -> bool:
    """Return whether a leaf is a torch tensor."""
    return isinstance(leaf, torch.Tensor)


def tensor_leaves(tree: Any) -> list[torch.Tensor]:
    """Return the tensors among the leaves."""
    return [leaf for leaf in flatten(tree) if is_tensor(leaf)]


def replace_leaves(tree: Any, values: Iterable[Any], which: Callable[[Any], bool] = is_tensor) -> Any:
    """Return the structure with its tensors, or the leaves that `which` selects, replaced by `values` in order."""
    rest = iter(values)
    return unflatten(tree, [next(rest) if which(leaf) else leaf for leaf in flatten(tree)])


def as_dicts(tree: Any) -> Any:
    """Return the structure with subclasses of dict that torch does not know converted to dict, as in TorchScript."""
    return unflatten(tree, [as_dicts(dict(leaf)) if isinstance(leaf, dict) else leaf for leaf in flatten(tree)])


def clone_tensors(tree: Any) -> Any:
    """Return the structure with every tensor detached and cloned."""
    return replace_leaves(tree, [tensor.detach().clone() for tensor in tensor_leaves(tree)])
