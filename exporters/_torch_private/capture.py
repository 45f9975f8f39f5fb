"""Capture of a model by ``torch.export``, as torch's exporter calls it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

from .guard import guarded
from .patching import replaced

Strategy = Literal["NonStrict", "Strict", "DraftExport"]
"""By Python code on fake tensors, by TorchDynamo, or by Python code on fake and real tensors."""


class UncapturedError(Exception):
    """A way of capturing failed; the cause is what torch or the model's code raised."""


@guarded("torch.onnx._internal.exporter._capture_strategies.CaptureStrategy")
def by_strategy(
    strategy: Strategy,
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    verbose: bool,
) -> torch.export.ExportedProgram:
    """Capture a model by a strategy of torch's exporter.

    Raises
    ------
    UncapturedError
        torch or the model's code raises an exception.
    """
    from torch.onnx._internal.exporter import _capture_strategies, _dynamic_shapes, _flags

    run = getattr(_capture_strategies, f"TorchExport{strategy}Strategy")(verbose=verbose)
    shapes, _ = _dynamic_shapes.convert_str_to_export_dim(dynamic_shapes)
    exporting = _flags.set_onnx_exporting_flag(run.__call__)  # the model's code may ask whether it is exported
    with _closed_logs(), warnings.catch_warnings():
        # torch itself asks for the gradient of a tensor that autograd computed.
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor", UserWarning)
        result = exporting(model, args, kwargs, shapes)
    program: torch.export.ExportedProgram | None = result.exported_program
    if program is None:
        raise UncapturedError(f"torch.export fails: {result.exception}") from result.exception
    return program


@guarded("ONNXProgram._capture_strategy")
def record_strategy(program: torch.onnx.ONNXProgram, strategy: Strategy) -> None:
    """Record by which strategy a model was captured, for ``torch.onnx.testing.assert_onnx_program``."""
    assert hasattr(program, "_capture_strategy")
    program._capture_strategy = f"TorchExport{strategy}Strategy"


@contextmanager
def _closed_logs() -> Iterator[None]:
    """Context manager: close the files into which ``torch.export.draft_export`` logs, which it leaves open."""
    module = _draft_module()
    make, made = module.CaptureStructuredTrace, []

    def making() -> Any:
        made.append(make())
        return made[-1]

    try:
        with replaced(module, "CaptureStructuredTrace", making):
            yield
    finally:
        for handler in made:
            handler.close()


@guarded("torch.export._draft_export.CaptureStructuredTrace")
def _draft_module() -> Any:
    """Return a module that torch imports late."""
    from torch.export import _draft_export

    assert callable(_draft_export.CaptureStructuredTrace)
    return _draft_export


@guarded("ExportedProgram._report")
def draft_failures(program: torch.export.ExportedProgram) -> list[tuple[str, dict[str, Any]]]:
    """Return what ``torch.export.draft_export`` reports: the kind of failure, and what torch knows of it."""
    report: Any = program._report  # type: ignore[attr-defined] # draft_export alone sets it
    return [(str(item.failure_type), item.data) for item in report.failures]
