"""Models for images, from timm, torchvision, segmentation-models-pytorch, kornia, MONAI, diffusers and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.model_coverage.inputs import Call, normal
from tests.model_coverage.model import Inputs, Made, model


def _enter(name: str, family: str, package: str, make: Callable[[], Any], *shapes: tuple[int, ...]) -> None:
    model(name, family, package)(lambda: (make(), normal(*shapes)))


def _timm(name: str, size: int, **arguments: Any) -> None:
    def make() -> torch.nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **arguments)

    _enter(f"timm {name}", "images", "timm", make, (3, size, size))


_timm("efficientvit_b0", 64)
_timm("maxvit_pico_rw_256", 64, img_size=64)
_timm("coatnet_pico_rw_224", 64, img_size=64)
_timm("xcit_nano_12_p16_224", 64, depth=2)
_timm("volo_d1_224", 64, img_size=64)
_timm("halonet26t", 256)
_timm("lambda_resnet26t", 64)
_timm("mobilevit_xxs", 64)


def _torchvision(name: str, size: int = 64, family: str = "images", **arguments: Any) -> None:
    def make() -> torch.nn.Module:
        import torchvision

        found = torchvision.models.segmentation if family != "images" else torchvision.models
        return getattr(found, name)(weights=None, num_classes=10, **arguments)

    _enter(f"torchvision {name}", family, "torchvision", make, (3, size, size))


_torchvision("resnet18")
_torchvision("densenet121")
_torchvision("shufflenet_v2_x0_5")
_torchvision("googlenet", 96, init_weights=False, aux_logits=False)
_torchvision("lraspp_mobilenet_v3_large", 64, "detection and segmentation", weights_backbone=None)
_torchvision("deeplabv3_mobilenet_v3_large", 64, "detection and segmentation", weights_backbone=None)


@model("torchvision retinanet_resnet50_fpn", "detection and segmentation", "torchvision")
def _retinanet() -> Made:
    import torchvision

    made = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5)
    return made, normal((3, 64, 64))


def _smp(name: str, **arguments: Any) -> None:
    def make() -> torch.nn.Module:
        import segmentation_models_pytorch

        return getattr(segmentation_models_pytorch, name)("resnet18", encoder_weights=None, classes=2, **arguments)

    _enter(f"smp {name}", "detection and segmentation", "segmentation-models-pytorch", make, (3, 64, 64))


for _name in ("Unet", "UnetPlusPlus", "FPN", "PSPNet", "DeepLabV3Plus", "MAnet", "UPerNet"):
    _smp(_name)


def _kornia(name: str, function: Callable[[Any], Callable[..., Any]], *shapes: tuple[int, ...]) -> None:
    def make() -> torch.nn.Module:
        import kornia

        made = function(kornia)
        return made if isinstance(made, torch.nn.Module) else Call(torch.nn.Identity(), lambda _, *args: made(*args))

    _enter(f"kornia {name}", "image processing", "kornia", make, *shapes)


_kornia("Canny", lambda k: k.filters.Canny(), (3, 24, 24))
_kornia("median blur", lambda k: k.filters.MedianBlur((3, 3)), (3, 16, 16))
_kornia("bilateral blur", lambda k: k.filters.BilateralBlur((3, 3), 0.1, (1.5, 1.5)), (3, 16, 16))
_kornia("rgb to lab", lambda k: lambda x: k.color.rgb_to_lab(x.abs()), (3, 16, 16))
_kornia("rgb to hsv", lambda k: lambda x: k.color.rgb_to_hsv(x.abs()), (3, 16, 16))
_kornia("CLAHE", lambda k: lambda x: k.enhance.equalize_clahe(x.sigmoid(), grid_size=(2, 2)), (1, 16, 16))
_kornia("histogram equalization", lambda k: lambda x: k.enhance.equalize(x.sigmoid()), (1, 16, 16))
_kornia("corner response", lambda k: k.feature.CornerHarris(0.04), (1, 24, 24))
_kornia("SIFT descriptor", lambda k: k.feature.SIFTDescriptor(32), (1, 32, 32))
_kornia(
    "warp by a homography",
    lambda k: lambda x, h: k.geometry.warp_perspective(x, torch.eye(3) + h / 100, (16, 16)),
    (1, 16, 16),
    (3, 3),
)
_kornia("homography of points", lambda k: lambda x, y: k.geometry.find_homography_dlt(x, x + y / 10), (8, 2), (8, 2))
_kornia("fundamental matrix", lambda k: lambda x, y: k.geometry.epipolar.find_fundamental(x, y), (9, 2), (9, 2))
_kornia("axis angle to rotation", lambda k: k.geometry.axis_angle_to_rotation_matrix, (3,))
_kornia(
    "rotation to quaternion",
    lambda k: lambda x: k.geometry.rotation_matrix_to_quaternion(torch.linalg.qr(x)[0]),
    (3, 3),
)
_kornia("affine", lambda k: lambda x, m: k.geometry.affine(x, torch.eye(3)[:2] + m / 10), (1, 16, 16), (2, 3))
_kornia("SSIM", lambda k: k.metrics.SSIM(5), (1, 16, 16), (1, 16, 16))
_kornia("total variation", lambda k: k.losses.TotalVariation(), (1, 16, 16))


def _monai(name: str, shape: tuple[int, ...], **arguments: Any) -> None:
    def make() -> torch.nn.Module:
        import monai

        return getattr(monai.networks.nets, name)(**arguments)

    _enter(f"MONAI {name}", "medical images", "monai", make, shape)


_monai("UNet", (1, 16, 16, 16), spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2))
_monai("SegResNet", (1, 16, 16, 16), spatial_dims=3, init_filters=8, in_channels=1, out_channels=2)
_monai("SwinUNETR", (1, 64, 64), spatial_dims=2, in_channels=1, out_channels=2, feature_size=12)
_monai(
    "UNETR",
    (1, 32, 32, 32),
    in_channels=1,
    out_channels=2,
    img_size=32,
    feature_size=4,
    hidden_size=24,
    mlp_dim=32,
    num_heads=4,
)


def _diffusers(name: str, inputs: Callable[[int], Inputs], **arguments: Any) -> None:
    @model(f"diffusers {name}", "diffusion", "diffusers")
    def _() -> Made:
        import diffusers

        return getattr(diffusers, name)(**arguments), inputs


def _noisy(**shapes: tuple[int, ...]) -> Callable[[int], Inputs]:
    def make(batch: int) -> Inputs:
        return {
            "timestep": torch.arange(batch) * 10 + 7,
            **dict(zip(shapes, normal(*shapes.values())(batch), strict=True)),
        }

    return make


_BLOCKS: dict[str, Any] = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}
_diffusers(
    "UNet2DModel",
    _noisy(sample=(3, 16, 16)),
    sample_size=16,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    attention_head_dim=4,
    **_BLOCKS,
)
_diffusers(
    "UNet2DConditionModel",
    _noisy(sample=(4, 16, 16), encoder_hidden_states=(6, 16)),
    sample_size=16,
    cross_attention_dim=16,
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    attention_head_dim=4,
    **_BLOCKS,
)
_diffusers(
    "AutoencoderKL",
    normal((3, 16, 16)),
    down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
    up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
    latent_channels=2,
    **_BLOCKS,
)
_diffusers(
    "VQModel",
    normal((3, 16, 16)),
    down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
    up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
    latent_channels=2,
    num_vq_embeddings=16,
    **_BLOCKS,
)
_diffusers(
    "SD3Transformer2DModel",
    _noisy(hidden_states=(4, 8, 8), encoder_hidden_states=(6, 16), pooled_projections=(12,)),
    sample_size=8,
    patch_size=2,
    in_channels=4,
    num_layers=1,
    attention_head_dim=8,
    num_attention_heads=2,
    joint_attention_dim=16,
    caption_projection_dim=16,
    pooled_projection_dim=12,
    out_channels=4,
    pos_embed_max_size=8,
)
