"""Models of transformers for images, sound, both with text, and time series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.model_coverage.inputs import keyword, normal, tokens
from tests.model_coverage.model import Inputs, Made, model

_SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}


def _enter(family: str, name: str, inputs: Callable[[int], Inputs], sizes: dict[str, Any], config: str = "") -> None:
    @model(name, family, "transformers")
    def _() -> Made:
        import transformers

        stem = name
        for suffix in ("Model", "ForObjectDetection", "ForDepthEstimation", "ForConditionalGeneration", "ForCTC"):
            stem = stem.removesuffix(suffix)
        made = getattr(transformers, config or f"{stem}Config")(**sizes)
        return getattr(transformers, name)(made), inputs


_IMAGE = keyword("pixel_values", 3, 32, 32)
_PATCHES = {**_SIZES, "image_size": 32, "patch_size": 8}
_SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4}
_STAGES = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}

for _name, _own in {
    "ViTModel": _PATCHES,
    "BeitModel": _PATCHES,
    "Dinov2Model": {**_PATCHES, "mlp_ratio": 2},
    "ViTMAEModel": {**_PATCHES, "mask_ratio": 0.0},
    "SwinModel": _SWIN,
    "Swinv2Model": _SWIN,
    "ConvNextModel": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "ResNetModel": _STAGES,
    "MobileNetV2Model": {"depth_multiplier": 0.25},
    "EfficientNetModel": {"width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320},
    "SegformerModel": {
        "num_encoder_blocks": 2,
        "depths": [1, 1],
        "sr_ratios": [2, 1],
        "hidden_sizes": [8, 16],
        "num_attention_heads": [1, 2],
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "mlp_ratios": [2, 2],
    },
    "PoolFormerModel": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
    "PvtModel": {
        "depths": [1, 1, 1, 1],
        "hidden_sizes": [8, 16, 16, 16],
        "image_size": 32,
        "num_attention_heads": [1, 2, 2, 2],
    },
    "FocalNetModel": {
        "image_size": 32,
        "embed_dim": 16,
        "depths": [1, 1],
        "focal_levels": [2, 2],
        "focal_windows": [3, 3],
    },
    "BitModel": {
        "embedding_size": 16,
        "hidden_sizes": [16, 32],
        "depths": [1, 1],
        "num_groups": 8,
        "layer_type": "preactivation",
    },
    "YolosForObjectDetection": {**_PATCHES, "image_size": [32, 32], "num_detection_tokens": 4},
    "Swin2SRModel": {
        "image_size": 16,
        "embed_dim": 16,
        "depths": [1, 1],
        "num_heads": [2, 2],
        "window_size": 4,
        "patch_size": 1,
    },
}.items():
    _enter("images", _name, _IMAGE, _own)


@model("DetrForObjectDetection", "detection and segmentation", "transformers")
def _detr() -> Made:
    import transformers

    config = transformers.DetrConfig(
        backbone_config=transformers.ResNetConfig(**_STAGES, out_features=["stage2"]),
        backbone=None,
        use_timm_backbone=False,
        num_queries=5,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        use_pretrained_backbone=False,
    )
    return transformers.DetrForObjectDetection(config), keyword("pixel_values", 3, 64, 64)


@model("DeformableDetrForObjectDetection", "detection and segmentation", "transformers")
def _deformable_detr() -> Made:
    import transformers

    config = transformers.DeformableDetrConfig(
        backbone_config=transformers.ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16, 16, 16],
            depths=[1, 1, 1, 1],
            out_features=["stage2", "stage3", "stage4"],
        ),
        backbone=None,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        num_queries=5,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
    )
    return transformers.DeformableDetrForObjectDetection(config), keyword("pixel_values", 3, 64, 64)


@model("RTDetrForObjectDetection", "detection and segmentation", "transformers")
def _rt_detr() -> Made:
    import transformers

    backbone = transformers.RTDetrResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 16, 16],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = transformers.RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[16, 16, 16],
        encoder_ffn_dim=32,
        encoder_attention_heads=2,
        d_model=32,
        num_queries=5,
        decoder_in_channels=[32, 32, 32],
        decoder_ffn_dim=32,
        decoder_layers=1,
        decoder_attention_heads=2,
        num_denoising=0,
        initializer_range=0.3,  # with the default, the features vanish, and the best of them are equal
        use_pretrained_backbone=False,
    )
    return transformers.RTDetrForObjectDetection(config), keyword("pixel_values", 3, 64, 64)


@model("SegformerForSemanticSegmentation", "detection and segmentation", "transformers")
def _segformer() -> Made:
    import transformers

    config = transformers.SegformerConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16
    )
    return transformers.SegformerForSemanticSegmentation(config), keyword("pixel_values", 3, 64, 64)


@model("SuperPointForKeypointDetection", "detection and segmentation", "transformers")
def _super_point() -> Made:
    import transformers

    config = transformers.SuperPointConfig(
        encoder_hidden_sizes=[8, 8, 16, 16], decoder_hidden_size=16, keypoint_decoder_dim=65, descriptor_decoder_dim=16
    )
    return transformers.SuperPointForKeypointDetection(config), keyword("pixel_values", 3, 64, 64)


_SOUND = {
    **_SIZES,
    "conv_dim": [16, 16],
    "conv_stride": [4, 4],
    "conv_kernel": [8, 8],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 20,
    "num_feat_extract_layers": 2,
}
_WAVES = keyword("input_values", 800, step=160)
for _name in ("Wav2Vec2ForCTC", "HubertModel", "WavLMModel", "Wav2Vec2ConformerModel", "SEWModel"):
    _enter("sound", _name, _WAVES, {**_SOUND, **({"squeeze_factor": 2} if _name == "SEWModel" else {})})
_enter(
    "sound",
    "ASTModel",
    keyword("input_values", 32, 16),
    {**_SIZES, "patch_size": 8, "max_length": 32, "num_mel_bins": 16, "frequency_stride": 8, "time_stride": 8},
)
_enter(
    "sound",
    "DacModel",
    keyword("input_values", 1, 640, step=64),
    {
        "encoder_hidden_size": 8,
        "downsampling_ratios": [2, 4],
        "decoder_hidden_size": 32,
        "n_codebooks": 2,
        "codebook_size": 16,
        "codebook_dim": 4,
        "hidden_size": 16,
    },
)
_enter(
    "sound",
    "EncodecModel",
    keyword("input_values", 1, 640, step=64),
    {
        "num_filters": 4,
        "hidden_size": 16,
        "codebook_size": 16,
        "upsampling_ratios": [4, 2],
        "sampling_rate": 24000,
    },
)


def _whisper_inputs(batch: int) -> Inputs:
    features = keyword("input_features", 16, 60)(batch)
    return {**features, "decoder_input_ids": tokens(6, 60)(batch)["input_ids"]}


_enter(
    "sound",
    "WhisperForConditionalGeneration",
    _whisper_inputs,
    {
        "vocab_size": 64,
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
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
    },
)


def _pair(name: str, config: str, shared: dict[str, Any]) -> None:
    @model(name, "images and text", "transformers")
    def _() -> Made:
        import transformers

        text = {
            **_SIZES,
            "vocab_size": 64,
            "max_position_embeddings": 16,
            "pad_token_id": 0,
            "eos_token_id": 2,
            "bos_token_id": 1,
        }
        made = getattr(transformers, config)(text_config=text, vision_config=_PATCHES, **shared)
        of_text = tokens(10)
        return getattr(transformers, name)(made), lambda batch: {**of_text(batch), **_IMAGE(batch)}


_pair("CLIPModel", "CLIPConfig", {"projection_dim": 16})
_pair("SiglipModel", "SiglipConfig", {})
_pair("OwlViTModel", "OwlViTConfig", {"projection_dim": 16})

_SERIES = {
    "context_length": 32,
    "patch_length": 8,
    "patch_stride": 8,
    "stride": 8,
    "num_input_channels": 2,
    "d_model": 16,
}
_enter(
    "time series",
    "PatchTSTModel",
    keyword("past_values", 32, 2),
    {**_SERIES, "num_attention_heads": 4, "ffn_dim": 32, "num_hidden_layers": 2},
)
_enter("time series", "PatchTSMixerModel", keyword("past_values", 32, 2), {**_SERIES, "num_layers": 2})


def _history(batch: int) -> Inputs:
    values, past, future = normal((24,), (24, 1), (6, 1))(batch)
    return {
        "past_values": values,
        "past_time_features": past,
        "past_observed_mask": torch.ones(batch, 24),
        "future_time_features": future,
        "future_values": normal((6,))(batch)[0],
    }


for _name in ("TimeSeriesTransformerModel", "InformerModel", "AutoformerModel"):
    _enter(
        "time series",
        _name,
        _history,
        {
            "prediction_length": 6,
            "context_length": 20,
            "lags_sequence": [1, 2, 4],
            "num_time_features": 1,
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_ffn_dim": 16,
            "decoder_ffn_dim": 16,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "use_cache": False,
        },
    )
