"""What every process needs before it makes a model; importing this module does it.

torchvision is imported without its compiled library, which PyPI has only for CUDA. A model that calls an operator of
it, non-maximum suppression for one, raises an error then.
"""

from __future__ import annotations

import contextlib

import torch

for _name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, _name):
        torch.library.define(f"torchvision::{_name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
with contextlib.suppress(ImportError):
    import transformers.modeling_utils  # noqa: F401 # takes seconds
