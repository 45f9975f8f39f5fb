"""Operators that torch decomposes into others, because its exporter's own translation of the whole is wrong."""

from __future__ import annotations

import torch

from .row_table import decompose

# Other names of operators.
_OTHER_NAMES = (
    *("divide", "true_divide", "multiply", "subtract", "greater", "greater_equal", "less", "less_equal", "concat"),
    *("concatenate", "special_softmax", "special_log_softmax", "special_erf", "special_erfc", "special_expm1"),
    "special_sinc",
)

# Wrong for numbers that are infinite, NaN or far from 0, or for tensors of several types.
_AT_EXTREMES = ("softmax", "log_softmax", "heaviside", "lerp", "logaddexp", "logaddexp2", "mse_loss", "stack", "xlogy")

# torch's exporter adds a bias of two dimensions where there is none, or needs tensors of one type.
_OF_ONE_FORM = ("conv3d", "atleast_1d", "atleast_2d", "atleast_3d")

# In training, torch's exporter normalizes by the wrong statistics; outside it, it returns those of the batch, where
# torch returns none.
_NORMALIZATION = ("_native_batch_norm_legit", "_native_batch_norm_legit_functional")

# ONNX Runtime has the nodes for float32 only, or they have constants of float32.
_OF_FLOAT32 = (
    *("elu", "celu", "selu", "softplus", "mish", "hardsigmoid", "hardswish", "leaky_relu", "gelu", "addcmul"),
    *("addcdiv", "addmm", "sigmoid", "silu", "sinc", "hardtanh", "glu"),
)

for _name in _OTHER_NAMES + _AT_EXTREMES + _OF_ONE_FORM + _NORMALIZATION:
    decompose(f"aten::{_name}")
for _name in _OF_FLOAT32:
    decompose(f"aten::{_name}", only=torch.float64)
