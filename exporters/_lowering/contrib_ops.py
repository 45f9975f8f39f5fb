"""Translations of torch operators to ONNX Runtime's contrib operators, domain ``com.microsoft``."""

from __future__ import annotations

import functools
from typing import Any

import onnx_ir

from .node_emission import opset
from .translations import register, register_translation

_FLOAT = {onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16}
_GRID_MODES = ("bilinear", "nearest", "bicubic")
_GRID_PADDINGS = ("zeros", "border", "reflection")
_IMAGE = 4


def register_contrib_ops() -> None:
    """Register translations to ONNX Runtime's contrib operators.

    They apply to both exporters, and replace earlier registrations of

    - ``aten::inverse`` and ``aten::linalg_inv``: ``Inverse``, which neither exporter supports,
    - ``aten::gelu``: ``Gelu``, or ``FastGelu`` with ``approximate="tanh"``,
    - ``aten::grid_sampler`` and ``aten::grid_sampler_2d``: ``GridSample``,
    - ``aten::triu`` and ``aten::tril``: ``Trilu``,
    - ``onnxruntime::DynamicTimeWarping`` and ``onnxruntime::UnfoldTensor``, if torch operators of these names are
      registered.

    torch's own translation still handles element types for which ONNX Runtime has no CPU kernel, or only a less precise
    one. The operators are those of ``onnxruntime.tools.pytorch_export_contrib_ops``.

    Examples
    --------
    >>> import exporters
    >>> exporters.registered_by("aten::inverse")
    >>> exporters.register_contrib_ops()
    >>> exporters.registered_by("aten::inverse")
    'exporters'
    """
    register_translation("aten::inverse", _inverse)
    register_translation("aten::linalg_inv", _inverse)
    register_translation("aten::gelu", _gelu)
    register_translation("aten::grid_sampler", _grid_sampler)
    register_translation("aten::grid_sampler_2d", _grid_sampler)
    register_translation("aten::triu", functools.partial(_trilu, upper=True))
    register_translation("aten::tril", functools.partial(_trilu, upper=False))
    register("onnxruntime::DynamicTimeWarping", opset("com.microsoft").DynamicTimeWarping)
    register("onnxruntime::UnfoldTensor", _unfold_tensor)


def _inverse(x: Any) -> Any:
    if _lacks(x, _FLOAT | {onnx_ir.DataType.DOUBLE}):
        return NotImplemented
    return opset("com.microsoft").Inverse(x)


def _gelu(x: Any, *, approximate: Any = None) -> Any:
    if _lacks(x, _FLOAT):
        return NotImplemented
    if approximate == "tanh":
        return opset("com.microsoft").FastGelu(x)
    return opset("com.microsoft").Gelu(x)


def _grid_sampler(x: Any, grid: Any, mode: int, padding_mode: int, align_corners: bool) -> Any:
    if _lacks(x, _FLOAT) or (x.shape is not None and len(x.shape) != _IMAGE):
        return NotImplemented
    return opset("com.microsoft").GridSample(
        x,
        grid,
        mode=_GRID_MODES[mode],
        padding_mode=_GRID_PADDINGS[padding_mode],
        align_corners=align_corners,
    )


def _trilu(x: Any, diagonal: Any = 0, *, upper: bool) -> Any:
    if _lacks(x, _FLOAT | {onnx_ir.DataType.DOUBLE, onnx_ir.DataType.INT64}):
        return NotImplemented
    return opset("com.microsoft").Trilu(x, diagonal, upper=upper)


def _unfold_tensor(x: Any, dim: int = -1, size: int = 1, step: int = 1) -> Any:
    return opset("com.microsoft").UnfoldTensor(x, dim=dim, size=size, step=step)


def _lacks(x: Any, dtypes: set[onnx_ir.DataType]) -> bool:
    return x.dtype is not None and x.dtype not in dtypes
