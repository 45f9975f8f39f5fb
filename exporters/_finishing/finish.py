"""The steps that finish an exported model, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir

from pyops._progress import step

from .._lowering.emission import Emission
from . import function_bodies, integer_division, opset_imports, optimization


@dataclass(frozen=True)
class Finishing:
    """How a model is finished; the attributes are arguments of `exporters.export`."""

    keep_functions: bool = False
    custom_opsets: Mapping[str, int] = field(default_factory=dict)
    optimize: bool = True


def finish(model: onnx_ir.Model, emitted: Emission, how: Finishing) -> None:
    """Add the functions and the opset imports that a model's nodes need, optimize it, and guard integer divisions.

    Raises
    ------
    ExportError
        The nodes do not match the declared ops, the opset versions or each other.
    """
    step("finishing the model")
    if how.optimize:
        # Before functions are added, because the optimization inlines functions.
        optimization.optimize(model, emitted.functions)
    inlined = function_bodies.add_functions(model, emitted, keep=how.keep_functions)
    opset_imports.set_opset_imports(model, emitted.versions, how.custom_opsets)
    opset_imports.validate_nodes(model, how.custom_opsets)
    if inlined and how.optimize:
        optimization.optimize(model)
    integer_division.guard_divisions(model)
