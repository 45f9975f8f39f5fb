"""Names of values that went through ``view_as_real`` or ``view_as_complex``, which come to nothing in a model."""

from __future__ import annotations

import itertools
import re

import onnx_ir

from ..finishing.model_nodes import all_nodes

_VIEW = re.compile(r"(view_as_real|view_as_complex|resolve_conj)(_\d+)?")


def rename_views(model: onnx_ir.Model) -> None:
    """Name such values after the operators that give them, where torch named them after the views."""
    values = [value for node in all_nodes(model) for value in node.outputs]
    taken = {value.name for value in [*values, *model.graph.inputs, *model.graph.initializers.values()]}
    for value in values:
        node = value.producer()
        if node is None or not node.domain or not _VIEW.fullmatch(value.name or ""):
            continue
        candidates = itertools.chain([node.op_type], (f"{node.op_type}_{number}" for number in itertools.count(1)))
        value.name = next(name for name in candidates if name not in taken)
        taken.add(value.name)
