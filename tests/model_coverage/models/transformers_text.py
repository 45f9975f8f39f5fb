"""Language models of transformers: encoders, decoders with and without a cache, mixtures of experts, both halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.model_coverage.inputs import Cached, cache, tokens
from tests.model_coverage.model import Made, model

# What most configurations call the same; the others have their own names for it.
_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def _made(name: str, config: str, sizes: dict[str, Any]) -> Any:
    import transformers

    return getattr(transformers, name)(getattr(transformers, config)(**sizes))


def _enter(family: str, inputs: Callable[..., Any], name: str, config: str, **sizes: Any) -> None:
    @model(name, family, "transformers")
    def _() -> Made:
        return _made(name, config, sizes), inputs


_ENCODERS = {
    "BertModel": {},
    "RobertaModel": {},
    "ElectraModel": {"embedding_size": 32},
    "AlbertModel": {"embedding_size": 16},
    "RoFormerModel": {"embedding_size": 32},
    "FNetModel": {"use_tpu_fourier_optimizations": False},
    "DebertaModel": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "DebertaV2Model": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "ModernBertModel": {"num_hidden_layers": 2, "global_attn_every_n_layers": 2, "local_attention": 8},
    "ConvBertModel": {"embedding_size": 32},
    "MobileBertModel": {"embedding_size": 32, "intra_bottleneck_size": 32},
    "NystromformerModel": {"num_landmarks": 4, "segment_means_seq_len": 12, "conv_kernel_size": 3},
    "BigBirdModel": {"attention_type": "original_full"},
    "LongformerModel": {"attention_window": 4},
    "EsmModel": {"position_embedding_type": "rotary", "mask_token_id": 2},
}
for _name, _own in _ENCODERS.items():
    # The length is in the configuration of Nystromformer, and FNet takes no mask.
    _ids = tokens(grows=_name != "NystromformerModel", masked=_name != "FNetModel")
    _enter("encoders", _ids, _name, _name.replace("Model", "Config"), **{**_SIZES, **_own})
_enter("encoders", tokens(), "XLNetModel", "XLNetConfig", vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=48)
_FUNNEL = {"vocab_size": 64, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48}
_enter("encoders", tokens(), "FunnelModel", "FunnelConfig", **_FUNNEL)


_DECODERS = {
    "GPT2LMHeadModel": {"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64},
    "GPTNeoXForCausalLM": {},
    "OPTForCausalLM": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "BloomForCausalLM": {"n_layer": 1, "n_head": 4},
    "FalconForCausalLM": {"new_decoder_architecture": True, "num_kv_heads": 4},
    "LlamaForCausalLM": {"num_key_value_heads": 4},
    "MistralForCausalLM": {"num_key_value_heads": 4, "sliding_window": 8, "num_hidden_layers": 2},
    "Qwen3ForCausalLM": {"num_key_value_heads": 4, "head_dim": 8},
    "Gemma2ForCausalLM": {"num_key_value_heads": 4, "head_dim": 8, "sliding_window": 8, "num_hidden_layers": 2},
    "Phi3ForCausalLM": {"num_key_value_heads": 4},
}
_STATES = {
    "MambaForCausalLM": {"state_size": 8, "expand": 2},
    "Mamba2ForCausalLM": {"state_size": 8, "num_heads": 8, "head_dim": 8, "expand": 2, "n_groups": 1, "chunk_size": 4},
    "RecurrentGemmaForCausalLM": {"lru_width": 32, "attention_window_size": 8, "num_hidden_layers": 3, "head_dim": 8},
    "Lfm2ForCausalLM": {"num_key_value_heads": 4, "layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "xLSTMForCausalLM": {"num_heads": 4, "num_blocks": 2, "embedding_dim": 32, "chunk_size": 4},
}
_EXPERTS = {
    "MixtralForCausalLM": {"num_key_value_heads": 4, "num_local_experts": 4},
    "Qwen2MoeForCausalLM": {
        "num_key_value_heads": 4,
        "num_experts": 4,
        "moe_intermediate_size": 16,
        "num_experts_per_tok": 2,
    },
    "OlmoeForCausalLM": {"num_key_value_heads": 4, "num_experts": 4, "num_experts_per_tok": 2},
    "GraniteMoeForCausalLM": {"num_key_value_heads": 4, "num_local_experts": 4},
    "GptOssForCausalLM": {
        "num_key_value_heads": 4,
        "head_dim": 8,
        "num_local_experts": 4,
        "sliding_window": 8,
        "num_hidden_layers": 2,
    },
    "DeepseekV3ForCausalLM": {
        "num_key_value_heads": 4,
        "n_routed_experts": 8,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 16,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "num_hidden_layers": 2,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
    },
    "Qwen3NextForCausalLM": {
        "num_key_value_heads": 4,
        "head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "shared_expert_intermediate_size": 16,
        "layer_types": ["linear_attention", "full_attention"],
        "num_hidden_layers": 2,
    },
}


def _config_of(name: str) -> str:
    return name.replace("LMHeadModel", "Config").replace("ForCausalLM", "Config")


for _family, _table in {
    "decoders": _DECODERS,
    "state spaces and recurrences": _STATES,
    "mixtures of experts": _EXPERTS,
}.items():
    for _name, _own in _table.items():
        _enter(_family, tokens(), _name, _config_of(_name), **{**_SIZES, **_own, "use_cache": False})


def _enter_cached(name: str, own: dict[str, Any]) -> None:
    @model(f"{name} with a cache", "decoders with a cache", "transformers")
    def _() -> Made:
        return Cached(_made(name, _config_of(name), {**_SIZES, **own})), cache(1, 4, 8)


for _name in ("GPT2LMHeadModel", "BloomForCausalLM", "LlamaForCausalLM", "Qwen3ForCausalLM", "Phi3ForCausalLM"):
    _enter_cached(_name, _DECODERS[_name])
_enter_cached("MixtralForCausalLM", _EXPERTS["MixtralForCausalLM"])

_BOTH = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "vocab_size": 64,
    "use_cache": False,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 64, "use_cache": False}
_T5 |= {"pad_token_id": 0, "decoder_start_token_id": 1}
for _name, _own in {
    "T5Model": _T5,
    "MT5Model": _T5,
    "LongT5Model": {**_T5, "local_radius": 4},
    "SwitchTransformersModel": {
        **_T5,
        "num_experts": 4,
        "num_sparse_encoder_layers": 1,
        "num_sparse_decoder_layers": 1,
    },
    "BartModel": _BOTH,
    "M2M100Model": _BOTH,
    "LEDModel": {
        **_BOTH,
        "attention_window": [4],
        "max_encoder_position_embeddings": 64,
        "max_decoder_position_embeddings": 64,
    },
    "ProphetNetModel": {
        "hidden_size": 32,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "vocab_size": 64,
        "max_position_embeddings": 64,
        "use_cache": False,
    },
}.items():
    _enter("encoders and decoders", tokens(decoder_input_ids=7), _name, _name.replace("Model", "Config"), **_own)
