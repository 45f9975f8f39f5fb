"""What an exported model still needs, in order."""

from __future__ import annotations

from collections.abc import Mapping

from ..program import Program
from ..translating.emission import Emission
from . import declared_nodes, function_bodies, opset_imports, optimization


def finish(
    program: Program,
    emitted: Emission,
    *,
    keep_functions: bool,
    custom_opsets: Mapping[str, int] | None,
    optimize: bool,
) -> Program:
    """Give a program's model, in place, the functions and the opset imports that its nodes need.

    Raises
    ------
    ExportError
        The nodes do not fit the declared ops, the opset versions or each other.
    """
    if optimize:
        # Before its functions are there, which it would inline.
        optimization.optimize(program, emitted.functions)
    inlined = function_bodies.settle(program.model, emitted, keep=keep_functions)
    opset_imports.settle(program.model, emitted.versions, custom_opsets or {})
    declared_nodes.settle(program.model, custom_opsets or {})
    if inlined and optimize:
        optimization.optimize(program)
    return program
