"""Giving an exported model what its nodes need."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir

from ..translating.emission import Emission
from . import declared_nodes, function_bodies, opset_imports


def settle(
    model: onnx_ir.Model, emitted: Emission, *, keep_functions: bool, custom_opsets: Mapping[str, int] | None
) -> bool:
    """Give a model the functions and the opset imports that its nodes need.

    Returns
    -------
    bool
        Whether functions were inlined, after which there may be something to optimize.

    Raises
    ------
    ExportError
        The nodes do not fit the declared ops, the opset versions or each other.
    """
    inlined = function_bodies.settle(model, emitted, keep=keep_functions)
    opset_imports.settle(model, emitted.versions, custom_opsets or {})
    declared_nodes.settle(model, custom_opsets or {})
    return inlined
