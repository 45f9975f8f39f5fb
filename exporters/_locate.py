"""What the values of an exported model should be: those of the program that torch's exporter translated."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.fx import Interpreter, Node

from pyops._core import load_model
from pyops._tolerances import TOLERANCES, Array, Tolerances, difference
from pyops.testing._wrong_node import CALL, Expected, Location, ModelValues, WrongNode, locate, metadata

from ._capture.comparison import ROUNDINGS, PreciseRun, ProgramRun, run_program
from ._capture.graph_calls import source_line
from ._capture.model_arguments import to_onnx_outputs
from ._program import Program
from .errors import ExportError

_SPLIT = re.compile(r"(.+)_split_0")


def locatable(program: Any) -> Program:
    """Return a program; raise ExportError if it has no graph with whose values those of the model can be compared."""
    if not isinstance(program, Program):
        raise ExportError(
            "locate=True needs what exporters.export returned, which knows the torch program; pass that as program, or "
            "leave program out, and the model is exported"
        )
    if program.exported_program is None:
        raise ExportError("locate=True finds nothing in a model exported with dynamo=False; export it without that")
    return program


def locate_difference(
    program: Program,
    call: tuple[tuple[Any, ...], Mapping[str, Any]],
    results: Mapping[str, Array],
    feed: Mapping[str, Any],
    make_session: Callable[[Any], Any],
    tolerances: Tolerances,
    agrees: bool,
) -> Location:
    """Return the first node that computes something else than the torch call that it comes from.

    Parameters
    ----------
    call : (tuple, mapping)
        The positional and keyword arguments of the model; `feed` has them by the inputs of the exported one.
    results : mapping
        What the model returns for them, by the outputs of the exported one. The program may return something else:
        torch has decomposed it.
    make_session : callable
        Returns a session of a model, which does not optimize.
    tolerances : mapping
        As for `exporters.verify`. Without them, a value may also differ by ten times torch's own rounding error there.
    """
    exported = program.exported_program
    assert exported is not None

    values = ModelValues(load_model(program), feed, make_session)
    parts = _parts(values)

    def reference(names: Sequence[str]) -> Mapping[str, Expected]:
        wanted = {parts.get(name, name): name for name in names}
        own = _values(exported, ProgramRun, wanted, call)
        own |= {name: results[name] for name in names if name in results}
        precise = {} if tolerances else _precise_values(exported, wanted, call)
        return {name: _expected(array, precise.get(name), tolerances) for name, array in own.items()}

    found = locate(values, reference, agrees)
    return found if found.first is None else replace(found, first=_with_line(found.first, exported, parts))


def _with_line(first: WrongNode, program: torch.export.ExportedProgram, parts: Mapping[str, str]) -> WrongNode:
    """Return the wrong node with the line of the user's code, of which torch writes only those of modules."""
    name = parts.get(first.value, first.value).partition("[")[0]
    lines = [source_line(node) for node in program.graph.nodes if node.name == name]
    return replace(first, place=lines[0]) if lines and lines[0] else first


def _parts(values: ModelValues) -> dict[str, str]:
    """Return, for outputs of nodes with several, their names among the results of a torch call."""
    found: dict[str, str] = {}
    for node in values.nodes:
        if len(node.output) > 1:
            # onnxscript's optimizer makes a Split of a sequence's parts, with such names and without metadata.
            split = _SPLIT.fullmatch(node.output[0])
            name = split[1] if split else metadata(node, CALL)[1:].partition(" ")[0]
            found |= {item: f"{name}[{index}]" for index, item in enumerate(node.output)}
    return found


def _expected(array: Array, precise: Array | None, tolerances: Tolerances) -> Expected:
    rtol, atol = tolerances.get(array.dtype.name, TOLERANCES.get(array.dtype.name, (0.0, 0.0)))
    if precise is not None and precise.shape == array.shape and array.dtype.kind in "fcV":
        rounded = difference(array, precise).absolute
        atol = max(atol, ROUNDINGS * float(rounded[np.isfinite(rounded)].max(initial=0)))
    return Expected(array, rtol, atol)


def _precise_values(program: torch.export.ExportedProgram, wanted: Mapping[str, str], call: Any) -> dict[str, Array]:
    try:
        return _values(program, PreciseRun, wanted, call)
    except Exception:  # operators of users may not take float64
        return {}


def _values(
    program: torch.export.ExportedProgram, kind: type[Interpreter], wanted: Mapping[str, str], call: Any
) -> dict[str, Array]:
    """Return tensors that calls of a program compute, ``"split"`` or ``"split[0]"``, by the names wanted for them."""
    found: dict[str, Array] = {}

    class Recorder(kind):  # type: ignore[valid-type, misc]  # the kind is a variable
        def run_node(self, n: Node) -> Any:
            result = super().run_node(n)
            parts = {n.name: result}
            if isinstance(result, (tuple, list)):
                parts = {f"{n.name}[{index}]": item for index, item in enumerate(result)}
            for name in parts.keys() & wanted.keys():
                if isinstance(parts[name], torch.Tensor):
                    found[wanted[name]] = to_onnx_outputs(parts[name])[0]
            return result

    run_program(program, Recorder, *call)
    return found
