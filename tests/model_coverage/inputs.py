"""Example arguments of models, and modules around models whose arguments or results are not tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

SIZES = (2, 3)
"""The size of the example, and the other one at which the exported model runs."""

_STEP = 4  # the larger batch is longer by this number of tokens


def tokens(
    length: int = 12, vocabulary: int = 64, grows: bool = True, masked: bool = True, **others: int
) -> Callable[[int], dict[str, torch.Tensor]]:
    """Return a function that makes token ids and a mask of a batch; a larger batch is longer too, if it `grows`.

    The `others` are lengths of further token inputs.
    """

    def make(batch: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(batch)
        more = _STEP * (batch - SIZES[0]) if grows else 0
        named = {name: size + more for name, size in {"input_ids": length, **others}.items()}
        ids = {name: torch.randint(3, vocabulary, (batch, size), generator=generator) for name, size in named.items()}
        return ids | ({"attention_mask": torch.ones(batch, named["input_ids"], dtype=torch.int64)} if masked else {})

    return make


def normal(*shapes: tuple[int, ...]) -> Callable[[int], tuple[torch.Tensor, ...]]:
    """Return a function that makes normally distributed tensors of a batch, given their shapes without it."""

    def make(batch: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(batch)
        return tuple(torch.randn(batch, *shape, generator=generator) for shape in shapes)

    return make


def keyword(name: str, *shape: int, step: int = 0) -> Callable[[int], dict[str, Any]]:
    """Return a function that makes a keyword argument of normal numbers; a larger batch is longer by `step`."""
    *first, last = shape
    return lambda batch: {name: normal((*first, last + step * (batch - SIZES[0])))(batch)[0]}


class Call(torch.nn.Module):
    """A module that computes a function of a model and up to three arguments."""

    def __init__(self, model: torch.nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, x: Any, y: Any = None, z: Any = None) -> Any:
        """Return what the function does."""
        return self.function(self.model, *(item for item in (x, y, z) if item is not None))


class Cached(torch.nn.Module):
    """One step of a decoder: token ids, and the keys and values of each layer, to logits and the longer cache."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, past: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
        """Return the logits, and the keys and values of each layer."""
        from transformers import DynamicCache

        cache = DynamicCache(past)
        result = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        return result.logits, [(layer.keys, layer.values) for layer in result.past_key_values.layers]


def cache(layers: int, heads: int, width: int, length: int = 5) -> Callable[[int], tuple[Any, ...]]:
    """Return a function that makes one token, and the keys and values of each layer; a larger batch has longer ones."""

    def make(batch: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(batch)
        shape = (batch, heads, length + _STEP * (batch - SIZES[0]), width)
        past = [tuple(torch.randn(shape, generator=generator) for _ in range(2)) for _ in range(layers)]
        return torch.randint(3, 64, (batch, 1), generator=generator), past

    return make
