"""Leaves of nested tuples, lists, dicts and registered classes, in the order of torch.export."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.utils import _pytree

from .patching import guarded, private


@guarded("torch.utils._pytree.tree_leaves")
def flatten(tree: Any) -> list[Any]:
    """Return the leaves."""
    return _pytree.tree_leaves(tree)


@guarded("torch.utils._pytree.tree_leaves")
def children(tree: Any) -> list[Any]:
    """Return the direct contents of a container that torch knows."""
    return _pytree.tree_leaves(tree, is_leaf=lambda item: item is not tree)


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
    """Return the structure with containers that torch does not know converted to dicts of their contents."""
    converted = []
    for leaf in flatten(tree):
        found = contents(leaf)
        converted.append(leaf if found is None else as_dicts(found))
    return unflatten(tree, converted)


def clone_tensors(tree: Any) -> Any:
    """Return the structure with every tensor detached and cloned."""
    return replace_leaves(tree, [tensor.detach().clone() for tensor in tensor_leaves(tree)])


def contents(leaf: Any) -> dict[str, Any] | None:
    """Return the contents of a container that torch does not know, by name, or None for any other object.

    Such a container is a subclass of dict, or an object with attributes that hold tensors, as caches of language
    models are. An object that refers to itself does not count, because it is not a tree.
    """
    if isinstance(leaf, dict):
        return dict(leaf)
    if is_tensor(leaf) or isinstance(leaf, _NO_CONTAINERS) or not hasattr(leaf, "__dict__"):
        return None
    try:
        return {name: value for name, value in vars(leaf).items() if _holds_tensors(value, (id(leaf),))} or None
    except _CycleError:
        return None


_NO_CONTAINERS = (torch.nn.Module, torch.ScriptObject, type, FunctionType, MethodType, ModuleType)


class _CycleError(Exception):
    """An object refers to itself."""


def _holds_tensors(value: Any, path: tuple[int, ...]) -> bool:
    """Return whether there is a tensor in nested containers.

    Parameters
    ----------
    path : tuple of int
        The ids of the objects that have the value.

    Raises
    ------
    _CycleError
        The value is one of those objects.
    """
    if is_tensor(value):
        return True
    if isinstance(value, (dict, list, tuple)):
        parts = value.values() if isinstance(value, dict) else value
    elif isinstance(value, _NO_CONTAINERS) or not hasattr(value, "__dict__"):
        return False
    else:
        parts = vars(value).values()
    if id(value) in path:
        raise _CycleError
    found = [_holds_tensors(item, (*path, id(value))) for item in parts]  # all of them, to find every cycle
    return any(found)


@contextmanager
def registering() -> Iterator[Callable[[Any], None]]:
    """Context manager: yield a function that lets torch flatten the unknown containers of a tree, within the block."""
    added: list[type] = []

    def register(tree: Any) -> None:
        for leaf in flatten(tree):
            found = contents(leaf)
            if found is None:
                continue
            if type(leaf) not in added:
                _register(type(leaf))
                added.append(type(leaf))
            register(found)

    try:
        yield register
    finally:
        for kind in added:
            private("torch.utils._pytree._deregister_pytree_node")(kind)


class _Template:
    """A container without its contents, from which one with other contents is made."""

    def __init__(self, container: Any, names: tuple[str, ...]) -> None:
        self._names = names
        self._empty = _with(container, dict.fromkeys(names))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Template) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[type, tuple[str, ...]]:
        return type(self._empty), self._names

    def filled(self, values: Iterable[Any]) -> Any:
        """Return a container with these contents."""
        return _with(self._empty, dict(zip(self._names, values, strict=True)))


def _with(container: Any, items: dict[str, Any]) -> Any:
    """Return a copy of a container with other items."""
    new = copy.copy(container)
    if isinstance(new, dict):
        for name, value in items.items():
            dict.__setitem__(new, name, value)
    else:
        vars(new).update(items)
    return new


@guarded("torch.utils._pytree.register_pytree_node")
def _register(kind: type) -> None:
    def flatten_one(container: Any) -> tuple[list[Any], _Template]:
        found = contents(container) or {}
        return list(found.values()), _Template(container, tuple(found))

    def flatten_with_keys(container: Any) -> tuple[list[tuple[Any, Any]], _Template]:
        values, template = flatten_one(container)
        keys: Iterable[Any] = map(_pytree.MappingKey, contents(container) or {})
        return list(zip(keys, values, strict=True)), template

    _pytree.register_pytree_node(
        kind,
        flatten_one,
        lambda values, template: template.filled(values),
        flatten_with_keys_fn=flatten_with_keys,
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__} {id(kind)}",  # needed to deregister
    )
