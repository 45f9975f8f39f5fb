"""How many layers of each kind a model calls, counted from its modules: where ops have to be found."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import torch

_CALLS = {
    r".*RMSNorm|T5LayerNorm": {"RMSNorm": 1},
    r".*RMSNormGated": {"RMSNorm": 1, "SwiGLU": 1},
    r"LayerNorm": {"LayerNorm": 1},
    r"(Llama|Qwen3|Mistral|Phi3|Qwen3Next)MLP|(Mixtral|Qwen3Next)Experts|MambaMixer": {"SwiGLU": 1},
    r"Gemma[23]MLP|T5DenseGatedActDense": {"GeGLU": 1},
    r"BertIntermediate|ViTMLP|Whisper(En|De)coderLayer": {"GELU": 1},
    r"WhisperEncoder": {"GELU": 2},  # after its convolutions
    r".*Attention": {"attention": 1},
}
"""What one call of a module computes, by the name of its class."""


def expected(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Counter[str]:
    """Return how many layers of each kind one call of a model has.

    Modules are counted when they are called. Of attention within attention the inner one counts; it rotates queries
    and keys if the model has a rotary embedding.
    """
    found: Counter[str] = Counter()
    handles = [
        module.register_forward_hook(lambda *_, own=own: found.update(own))
        for module in model.modules()
        for own in [_layers(module)]
        if own
    ]
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    if any("Rotary" in _name(module) for module in model.modules()):
        found["rotary"] += 2 * found["attention"]
    return found


def _layers(module: torch.nn.Module) -> dict[str, int]:
    inner = [_name(item) for item in module.modules() if item is not module]
    if "Attention" in _name(module) and any("Attention" in name for name in inner):
        return {}
    matching = [own for pattern, own in _CALLS.items() if re.fullmatch(pattern, _name(module))]
    return matching[-1] if matching else {}


def _name(module: torch.nn.Module) -> str:
    return type(module).__name__
