"""A first export, for which torch imports modules for seconds; importing this module makes it."""

from __future__ import annotations

import torch

torch.onnx.export(torch.nn.Identity().eval(), (torch.zeros(1),), dynamo=True, verbose=False)
