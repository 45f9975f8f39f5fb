"""The comparison of a captured program with its model, in torch, for the example arguments."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Interpreter, Node

from pyops._support.progress import step
from pyops._tolerances import Array, difference

from .._report import OutputComparison, compare, describe_differences
from .._torch.private.operators import OpOverload, qualified_name
from .._torch.private.trees import clone_tensors, flatten, replace_leaves, tensor_leaves, unflatten
from .decisions import CaptureDecision
from .failures import UnfaithfulError, summary
from .graph_calls import format_place, random_calls
from .model_arguments import to_onnx_outputs
from .preparation import Example, unchanged_attributes
from .sizes import model_place

MOST_PARAMETERS = 100_000_000
"""The number of parameters above which a captured program is not compared with its model."""

ROUNDINGS = 10
"""How many times torch's own rounding error a value may differ."""

_EQUAL_SIZES = re.compile(r"Runtime assertion failed for expression Eq\((?=.*\bu\d).*\b[su]\d.*, .*\b[su]\d")
_WIDE = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64) | {
    torch.complex64: torch.complex128
}


def check_program(
    program: torch.export.ExportedProgram,
    example: Example,
    decisions: Iterable[CaptureDecision] = (),
    drafted: bool = False,
) -> str:
    """Compare what a captured program and its model compute for the example arguments.

    Parameters
    ----------
    drafted : bool
        The program asserts what a draft export decided; it is compared whatever its size, and with one seed.

    Returns
    -------
    str
        Why they cannot be compared; ``""`` if they can.

    Raises
    ------
    CaptureError
        The program computes something else.
    """
    model, args, kwargs = example.model, example.args, example.kwargs
    if not isinstance(model, torch.nn.Module):
        return ""
    if not drafted and _is_large(program):
        return f"the model has more than {MOST_PARAMETERS:,} parameters"
    if not drafted and (random_calls(program) or any(item.depends_on == "random" for item in decisions)):
        return "the model draws random numbers"
    step("comparing the captured program")
    try:
        expected = results(model, args, kwargs, parameters=True)
    except Exception as error:  # the model's code may raise anything
        return f"the model does not run on the example arguments: {summary(error)}"
    if any(item.dtype.kind == "U" for item in expected):
        return "the model returns text"
    try:
        actual = run_program(program, Interpreter if drafted else ProgramRun, args, kwargs)
    except Exception as error:  # torch may raise anything
        raise UnfaithfulError(f"the captured program fails where the model does not: {summary(error)}") from None
    if [x.dtype for x in expected] == [x.dtype for x in actual] and all(map(np.array_equal, expected, actual)):
        return ""
    reports = compare(0, (), expected, actual, by="the captured program")
    wrong = [item for item in allow_rounding(reports, program, args, kwargs) if not item.ok]
    if not wrong:
        return ""
    if not all(item.ok for item in compare(0, (), expected, results(model, args, kwargs, parameters=True))):
        return "the model computes other values in each run"
    raise UnfaithfulError(
        f"the captured program does not compute what the model does for the example arguments: {wrong[0].name} "
        f"{describe_differences(wrong[:1])}, in {format_place(model_place(model))}\n  "
        "verify=False exports it nevertheless"
    )


def allow_rounding(
    reports: list[OutputComparison],
    program: torch.export.ExportedProgram,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> list[OutputComparison]:
    """Accept outputs that differ by at most ten times what the program's own differ from those in float64."""
    if all(item.ok for item in reports) or any(item.problem for item in reports) or _is_large(program):
        return reports
    try:
        own, precise = (run_program(program, kind, args, kwargs) for kind in (ProgramRun, PreciseRun))
        differences = [difference(*pair).absolute for pair in zip(own, precise, strict=True)]
    except Exception:  # operators of users may not take float64
        return reports
    allowed = [ROUNDINGS * float(item[np.isfinite(item)].max(initial=0)) for item in differences]
    return [
        replace(item, rtol=0.0, atol=atol, ok=True) if item.absolute <= atol and not item.ok else item
        for item, atol in zip(reports, allowed, strict=True)
    ]


def _is_large(program: torch.export.ExportedProgram) -> bool:
    count: int = sum(item.numel() for item in program.state_dict.values())
    return count > MOST_PARAMETERS


class ProgramRun(Interpreter):
    """A run of a captured program without torch's assertions about sizes; models lack them, and some are too tight.

    Assertions that a size that depends on data equals another one stay: torch takes it for equal where it may be 1.
    """

    def run_node(self, n: Node) -> Any:
        is_assertion = isinstance(n.target, OpOverload) and qualified_name(n.target) == "aten::_assert_scalar"
        return None if is_assertion and not _EQUAL_SIZES.search(str(n.args[1])) else super().run_node(n)


class PreciseRun(ProgramRun):
    """A run of a captured program with float64 in place of narrower types."""

    def run_node(self, n: Node) -> Any:
        return _widened(super().run_node(n))

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(target, *_widened((args, kwargs)))


def _widened(tree: Any) -> Any:
    return unflatten(tree, list(map(_wide, flatten(tree))))


def _wide(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.to(_WIDE.get(leaf.dtype, leaf.dtype))
    return _WIDE.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf


def lifted_inputs(program: torch.export.ExportedProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the inputs of a program's graph: copies of its state and constants, and the arguments."""
    held, given = {**program.state_dict, **program.constants}, iter(flatten((args, dict(kwargs))))
    specs = program.graph_signature.input_specs
    state = clone_tensors([held.get(str(spec.target)) for spec in specs])
    return [next(given) if spec.kind is InputKind.USER_INPUT else item for spec, item in zip(specs, state, strict=True)]


def run_program(
    program: torch.export.ExportedProgram, kind: type[Interpreter], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Array]:
    """Return the user's outputs of a program, run by an interpreter of this kind."""

    def run(*args: Any, **kwargs: Any) -> Any:
        outputs = kind(program.graph_module).run(*lifted_inputs(program, args, kwargs))
        specs = program.graph_signature.output_specs
        return [item for item, spec in zip(outputs, specs, strict=True) if spec.kind is OutputKind.USER_OUTPUT]

    return results(run, args, kwargs)


def results(
    run: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], parameters: bool = False
) -> list[Array]:
    """Return what a model or a function computes, as arrays; undo what that changes, in parameters only on demand."""
    given = tensor_leaves((args, dict(kwargs)))
    copies = [item.detach().clone().requires_grad_(item.requires_grad) for item in given]
    positional, keywords = replace_leaves((args, dict(kwargs)), copies)
    devices = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
    with (
        warnings.catch_warnings(),
        torch.compiler.set_stance("force_eager"),
        torch.random.fork_rng(devices),
        unchanged_attributes(run, parameters),
    ):
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)  # torch.manual_seed would seed a GPU that is not in use yet
        return to_onnx_outputs(clone_tensors(run(*positional, **keywords)))
