"""The models: transformers of two layers, made from their configurations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from tests.model_coverage.inputs import keyword, tokens
from tests.model_coverage.model import Inputs, Made

_VOCABULARY = 100
_SIZES = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2, "head_dim": 8, "use_cache": False}
_EXPERTS = {"num_experts_per_tok": 2}
_GEMMA = {**_GROUPED, "sliding_window": 8}
_NEXT = {
    **_GROUPED,
    **_EXPERTS,
    "head_dim": 16,
    "num_experts": 4,
    "moe_intermediate_size": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "shared_expert_intermediate_size": 16,
    "layer_types": ["linear_attention", "full_attention"],
}
_STATES = {**_SIZES, "state_size": 8, "expand": 2, "use_cache": False}
_WHISPER = {
    "vocab_size": _VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "num_mel_bins": 16,
    "max_source_positions": 30,
    "max_target_positions": 20,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_T5 = {
    **{"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": _VOCABULARY},
    **{"use_cache": False, "pad_token_id": 0, "decoder_start_token_id": 1, "feed_forward_proj": "gated-gelu"},
}
_PATCHES = {**_SIZES, "image_size": 16, "patch_size": 4}


def _whisper(batch: int) -> Inputs:
    features = keyword("input_features", 16, 60)(batch)
    return {**features, "decoder_input_ids": tokens(6, _VOCABULARY)(batch)["input_ids"]}


_text = tokens(vocabulary=_VOCABULARY)
_ROWS: dict[str, tuple[str, str, dict[str, Any], Callable[[int], Inputs]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", _GROUPED, _text),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", _GROUPED, _text),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_GROUPED, "sliding_window": 8}, _text),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", _GEMMA, _text),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", _GEMMA, _text),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {**_SIZES, "num_key_value_heads": 2, "use_cache": False}, _text),
    "bert": ("BertModel", "BertConfig", _SIZES, _text),
    "vit": ("ViTModel", "ViTConfig", _PATCHES, keyword("pixel_values", 3, 16, 16)),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", _WHISPER, _whisper),
    "t5": ("T5Model", "T5Config", _T5, tokens(vocabulary=_VOCABULARY, decoder_input_ids=7)),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**_GROUPED, **_EXPERTS, "num_local_experts": 4}, _text),
    "mamba": ("MambaForCausalLM", "MambaConfig", _STATES, _text),
    "mamba2": (
        "Mamba2ForCausalLM",
        "Mamba2Config",
        {**_STATES, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 4},
        _text,
    ),
    "qwen3_next": ("Qwen3NextForCausalLM", "Qwen3NextConfig", _NEXT, _text),
}


def _made(row: tuple[str, str, dict[str, Any], Callable[[int], Inputs]], attention: str | None) -> Made:
    import transformers

    model, config, sizes, inputs = row
    made = getattr(transformers, config)(**sizes)
    if attention:
        made._attn_implementation = attention
    return randomized(getattr(transformers, model)(made)), inputs


def randomized(model: torch.nn.Module) -> torch.nn.Module:
    """Draw the weights of norms, too, which would be folded if they were ones."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def models() -> dict[str, Callable[[], Made]]:
    """Return functions that make the models and their inputs, by name; some attend in two ways."""
    found = {name: functools.partial(_made, row, None) for name, row in _ROWS.items()}
    eager = ("llama", "gemma3", "bert", "t5", "whisper")
    return found | {f"{name}, eager": functools.partial(_made, _ROWS[name], "eager") for name in eager}
