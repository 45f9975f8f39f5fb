"""Comparison of the values inside a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from pyops._comparison import Tolerances

from .._report import OutputComparison, compare
from .._torch.tensors import as_onnx_array
from .._torch_private.trees import clone_tensors
from ..errors import ExportError


def compare_intermediates(
    number: int, program: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], tolerances: Tolerances
) -> list[OutputComparison]:
    """Compare the values inside an exported program, in the order of its nodes.

    A value is compared if torch's graph has a node of the same name. torch's exporter keeps the names, but its
    optimizations leave some values without a counterpart.

    Raises
    ------
    ExportError
        The program has no torch graph.
    """
    if getattr(program, "exported_program", None) is None:
        raise ExportError(
            "intermediates=True needs the program that exporters.export returned, which has torch's graph beside the "
            f"model; got {type(program).__name__}"
        )
    interpreter = _Interpreter(program.exported_program.module())
    interpreter.run(*clone_tensors(args), *clone_tensors(dict(kwargs)).values())
    producers = {
        value.name: node for node in program.model.graph for value in node.outputs if value.name in interpreter.values
    }
    names = list(producers)
    actual = program.compute_values(names, args, dict(kwargs)) if names else ()
    reports = compare(
        number,
        names,
        [as_onnx_array(interpreter.values[name]) for name in names],
        [as_onnx_array(value) for value in actual],
        tolerances,
    )
    spelled = {name: f"{node.domain or 'ai.onnx'}::{node.op_type} {node.name!r}" for name, node in producers.items()}
    return [replace(report, node=spelled[report.name]) for report in reports]


class _Interpreter(torch.fx.Interpreter):
    """An interpreter that runs torch's graph and stores each computed tensor by name."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module)
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, torch.Tensor):
            # A later node may write to it in place.
            self.values[n.name] = result.detach().clone()
        return result
