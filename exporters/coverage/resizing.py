"""Samples at another size."""

from __future__ import annotations

from typing import Any

import torch

from ..resizing import Tensors, other_sizes, takes
from .samples import Sample


def dynamic_shapes(sample: Sample) -> Any:
    """Every dimension of every tensor dynamic, as far as torch finds that it can be."""
    auto = torch.export.Dim.AUTO
    return (tuple(dict.fromkeys(range(tensor.dim()), auto) for tensor in sample.tensors),)


def is_resizable(sample: Sample) -> bool:
    """Whether torch takes the call at another size too."""
    return next(other_sizes(sample.module, sample.tensors), None) is not None


def resized(sample: Sample, program: torch.export.ExportedProgram) -> Tensors | None:
    """Arguments of another size that torch takes and that the exported program takes too; None if there are none.

    Parameters
    ----------
    sample : Sample
    program : torch.export.ExportedProgram
        Of the sample, with `dynamic_shapes`.
    """
    module = program.module()
    return next((tensors for tensors in other_sizes(sample.module, sample.tensors) if takes(module, tensors)), None)
