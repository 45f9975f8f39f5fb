"""Torch's optimization of an exported model, which leaves every call of a declared op in it.

A kernel is any Python: it may count, log or draw random numbers. The optimizer merges nodes that are
equal and drops those whose outputs nobody uses, whatever their domain; ONNX Runtime does neither to a
custom operator.
"""

from __future__ import annotations

from collections.abc import Container

import onnx_ir
import torch
from onnx_ir.passes.common import InlinePass

from pyops import registry

from ..translating.emission import Keepers
from .model_nodes import all_nodes

# Two underscores before a name keep onnx from looking for it in a schema.
_MARK = "__pyops_call"


def optimize(program: torch.onnx.ONNXProgram, functions: Container[tuple[str, str]] = ()) -> None:
    """Optimize the program's model in place, as ``torch.onnx.export(optimize=True)`` does.

    Parameters
    ----------
    functions : container of (str, str)
        Domain and name of functions that the model will get, whose calls stay as well.
    """
    InlinePass()(program.model)
    calls = [
        node
        for node in all_nodes(program.model)
        if registry.versions(node.domain, node.op_type) or (node.domain, node.op_type) in functions
    ]
    with Keepers() as keepers:
        for number, node in enumerate(calls):
            keepers.keep(node.outputs)
            node.attributes.add(onnx_ir.AttrInt64(_MARK, number))
        program.optimize()
    for node in calls:
        node.attributes.pop(_MARK, None)
