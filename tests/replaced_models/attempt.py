"""Export of a model, and the search for its layers."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch

import pyops
from exporters import export, to_onnx_inputs
from exporters._torch.private.patching import quiet
from pyops import Op
from tests.model_coverage.attempt import dynamic_shapes
from tests.model_coverage.model import Inputs
from tests.operator_coverage import reasons
from tests.replaced_models.ops import LAYERS

KINDS = tuple(LAYERS)
_REASONS = 2  # of a kind of layers


class Exporter(StrEnum):
    """The exporter of a model."""

    OURS = "exporters.export"
    TORCH = "torch.onnx.export"
    PLAIN = "torch.onnx.export, optimize=False"


@dataclass(frozen=True)
class Result:
    """What was found in one export of one model.

    Attributes
    ----------
    expected, found : mapping of str to int
        The number of layers of each kind that the model has, and the number of places.
    reasons : mapping of str to list of str
        Why others were not found, for each kind.
    fixed : str
        Why the export is one of the example's size; empty if other sizes are possible.
    failed : str
        Why there is no export.
    """

    expected: Mapping[str, int]
    found: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, list[str]] = field(default_factory=dict)
    fixed: str = ""
    failed: str = ""


def attempt(
    model: torch.nn.Module,
    samples: list[Inputs],
    layers: Mapping[str, int],
    exporter: Exporter,
    opset: int,
    verify: bool,
    kinds: Sequence[str] = KINDS,
) -> Result:
    """Export a model, with dynamic dimensions where that is possible, and search for its layers."""
    fixed = ""
    with warnings.catch_warnings(), torch.no_grad(), quiet():
        warnings.simplefilter("ignore")
        shapes = dynamic_shapes(*samples)
        try:
            program = _exported(model, samples[0], exporter, opset, dynamic_shapes=shapes)
        except Exception as error:  # an exporter may raise anything
            fixed = reasons.one_line(error)
            try:
                program = _exported(model, samples[0], exporter, opset)
            except Exception as other:
                return Result(layers, failed=reasons.one_line(other))
        return searched(program, samples[0], layers, verify, fixed, kinds)


def searched(
    program: Any, sample: Inputs, layers: Mapping[str, int], verify: bool, fixed: str = "", kinds: Sequence[str] = KINDS
) -> Result:
    """Search for layers of an exported model; for kinds that it is not known to have, too."""
    args, kwargs = split(sample)
    inputs = to_onnx_inputs(program, *args, **kwargs) if verify else None
    every = [op for kind in kinds for op in LAYERS[kind]]
    replaced = pyops.replace(program, every, inputs=inputs, verify=verify, bodies=verify)
    found: Counter[str] = Counter()
    missing = {}
    for kind, ops in ((kind, LAYERS[kind]) for kind in kinds):
        found[kind] = sum(replaced.counts[op.signature.qualified_name] for op in ops)
        if found[kind] < layers.get(kind, 0):
            missing[kind] = _reasons(replaced, ops)
    return Result(layers, dict(found), missing, fixed)


def split(sample: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the keyword arguments of a sample."""
    return ((), sample) if isinstance(sample, dict) else (sample, {})


def _exported(model: torch.nn.Module, sample: Inputs, exporter: Exporter, opset: int, **options: Any) -> Any:
    args, kwargs = split(sample)
    options |= {"kwargs": kwargs, "opset_version": opset, "verbose": False}
    if exporter is Exporter.OURS:
        return export(model, args, **options)
    return torch.onnx.export(model, args, dynamo=True, optimize=exporter is Exporter.TORCH, **options)


def _reasons(replaced: Any, ops: tuple[Op[..., Any], ...]) -> list[str]:
    """Return why places of ops were not found: what was refused, and what agrees most."""
    names = {op.signature.qualified_name for op in ops}
    refused = [f"refused: {item.reason}" for item in replaced.refused if item.op in names]
    near = sorted(
        (item for item in replaced.near if item.op in names), key=lambda item: -item.agreeing / max(item.total, 1)
    )
    notes = [item for item in replaced.notes if any(name in item for name in names)]
    close = [f"{item.op.partition('::')[2]}, {item}" for item in near]
    found = list(dict.fromkeys(map(reasons.shortened, [*refused, *close])))[:_REASONS]
    return found + [reasons.shortened(item) for item in notes]
