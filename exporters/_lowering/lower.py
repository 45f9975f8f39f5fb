"""Lowering of a captured program by torch's exporter, with a `Lowering` and without optimization."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import onnx
import torch

from .._torch_private.exporter import Lowering, RepeatedError, adapted_exporter
from ..errors import ExportError
from .emission import Emission, record_emission
from .explanations import unwrapped


def lower(
    program: torch.export.ExportedProgram, lowering: Lowering, arguments: Mapping[str, Any]
) -> tuple[torch.onnx.ONNXProgram, Emission]:
    """Translate a captured program.

    Parameters
    ----------
    lowering : Lowering
        What decomposes and translates the calls.
    arguments : mapping
        As for ``torch.onnx.export``.

    Returns
    -------
    tuple
        The model with the decomposed program, and what the translations emitted.

    Raises
    ------
    ExportError
        A call cannot be translated, or torch has no conversion to the opset version.
    Exception
        Any exception of a translation or a shape function, not wrapped in torch's.
    """
    given = {**arguments, "optimize": False, "verbose": arguments.get("verbose") is True}
    failure: Exception = RepeatedError()
    while isinstance(failure, RepeatedError):
        try:
            with record_emission() as emitted, adapted_exporter(lowering), _unwarned():
                return _exported(program, given), emitted
        except Exception as error:  # torch has no common base class for export errors
            failure = unwrapped(error)
    raise failure


@contextmanager
def _unwarned() -> Iterator[None]:
    """Context manager: drop warnings about torch's own code, which the user cannot change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*", FutureWarning)
        warnings.filterwarnings("ignore", ".*is deprecated", DeprecationWarning, r"torch\.onnx")
        yield


def _exported(program: torch.export.ExportedProgram, arguments: dict[str, Any]) -> torch.onnx.ONNXProgram:
    wanted = arguments.get("opset_version")
    try:
        exported = torch.onnx.export(program, dynamo=True, **arguments)
    except ValueError as error:
        if not str(error).startswith("Target opset version"):
            raise
        if not 1 <= arguments["opset_version"] <= onnx.defs.onnx_opset_version():
            raise ExportError(
                f"opset_version is {wanted}, but this onnx has opsets 1 to {onnx.defs.onnx_opset_version()}; pass one "
                "of these, or leave out opset_version"
            ) from None
        # torch cannot convert to this version; without a node of ONNX's own, there is nothing to convert.
        exported = torch.onnx.export(program, dynamo=True, **{**arguments, "opset_version": None})
        assert exported is not None
        exported.model.opset_imports[""] = arguments["opset_version"]
    assert exported is not None  # None only with dynamo=False
    version = exported.model.opset_imports.get("")
    if wanted and version != wanted:
        raise ExportError(
            f"torch's exporter makes a model of opset {version}, which it cannot convert to opset {wanted}; leave out "
            "opset_version"
        )
    return exported
