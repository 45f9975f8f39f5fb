"""The steps that finish an exported model, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyops._progress import step

from .._lowering.emission import record_emission
from .._lowering.explanations import unwrapping_errors
from . import function_bodies, integer_division, opset_imports, optimization
from .program import Program


def finish(
    capture: Callable[[], Program],
    *,
    keep_functions: bool,
    custom_opsets: Mapping[str, int] | None,
    optimize: bool,
) -> Program:
    """Capture a program, then add the functions and the opset imports that its nodes need, and optimize it.

    At last, guard its integer divisions.

    Raises
    ------
    ExportError
        The model cannot be exported, or its nodes do not match the declared ops, the opset versions or each other.
    Exception
        Any exception of a translation or a shape function, not wrapped in torch's.
    """
    custom_opsets = custom_opsets or {}
    opset_imports.check_custom_opsets(custom_opsets)
    with unwrapping_errors(), record_emission() as emitted:
        program = capture()
    step("finishing the model")
    if optimize:
        # Before functions are added, because the optimization inlines functions.
        optimization.optimize(program.model, emitted.functions)
    inlined = function_bodies.add_functions(program.model, emitted, keep=keep_functions)
    opset_imports.set_opset_imports(program.model, emitted.versions, custom_opsets)
    opset_imports.validate_nodes(program.model, custom_opsets)
    if inlined and optimize:
        optimization.optimize(program.model)
    integer_division.guard_divisions(program.model)
    return program
