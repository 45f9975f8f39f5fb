"""Which component exports each torch operator of a model, without exporting it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pyops._ops.op import Op

from ._arguments import split_arguments
from ._fallback import opaque, rewriting
from ._fallback.capturing import capture_graph
from ._fallback.named_calls import call_nodes, mark_of, target_of
from ._fallback.sources import source_line
from ._finishing.program import Model
from ._library import library
from ._library.table import Row
from ._lowering.explanations import causes, explain_error
from ._lowering.translations import registered, registered_source
from ._report import By, OperatorSupport, SupportReport
from ._torch.operators import is_native
from ._torch_private.exporter import one_at_a_time, untranslated
from ._torch_private.operators import OpOverload, qualified_name
from .errors import ExportError

_LACKING = "torch's exporter has no translation"


@one_at_a_time
def explain(
    model: Model,
    args: tuple[Any, ...] = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None,
    kernels: bool = True,
) -> SupportReport:
    """Report what exports each torch operator of a model: torch, a registration, a kernel, a fallback or nothing.

    The model is captured with ``torch.export`` but not exported, so no translation runs. An operator whose
    translation rejects this call, or gives wrong values for it, is therefore reported as torch's;
    ``export(..., fallback="verify")`` finds those.

    The model is captured with ``torch.export`` and not exported: no translation is called. So an operator
    whose translation refuses this very call counts as torch's, and one that is translated wrongly too;
    ``export(..., fallback="verify")`` finds those.

    Parameters
    ----------
    model : torch.nn.Module or torch.export.ExportedProgram
        Call ``model.eval()`` first.
    args : tuple
        Example arguments.
    kwargs, dynamic_shapes, custom_translation_table, kernels
        As for `export`.

    Returns
    -------
    SupportReport
        One entry per operator that the model's code calls, not per operator that torch decomposes it into; shown
        as a table. If ``torch.export`` cannot capture the model, or torch's exporter fails before it translates
        anything, the report is empty and its `problem` says why.

    Raises
    ------
    ExportError
        `args` is not a tuple.

    Examples
    --------
    >>> import exporters, torch
    >>> class Model(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.lgamma(torch.relu(x))
    >>> [(item.operator, item.by) for item in exporters.explain(Model().eval(), (torch.ones(2),))]
    [('aten::relu', 'torch'), ('aten::lgamma', 'kernel')]
    """
    if not isinstance(args, tuple):
        raise ExportError(f"explain takes a model's arguments as a tuple, not {type(args).__name__}; write (x,)")
    table = custom_translation_table or {}
    translated = {*table, *registered()}
    try:
        graph = capture_graph(model, *split_arguments(model, args, kwargs), dynamic_shapes, translated)
    except Exception as error:  # torch or the model's own code may raise anything
        return SupportReport([], f"torch.export cannot capture the model: {_describe_error(error)}")
    try:
        missing = _missing(graph, translated)
        supported = library.translations().keys() - translated if kernels and missing else frozenset()
        lacking = _missing(graph, translated, supported) if supported else missing
    except Exception as error:  # a decomposition may raise anything
        return SupportReport([], f"torch's exporter stops before it translates anything: {_describe_error(error)}")
    found: dict[tuple[str, By, str], list[str]] = {}
    for name, node in call_nodes(graph):
        row = library.find(_operator(node)) if kernels else None
        verdict = _verdict(node, missing.get(name), name in lacking, table, row)
        found.setdefault(verdict, []).append(source_line(node))
    for name in lacking.keys() - dict(call_nodes(graph)).keys():
        found[name, "nothing", lacking[name].reason] = [""]
    return SupportReport(
        OperatorSupport(operator, len(lines), by, reason, tuple(dict.fromkeys(filter(None, lines))))
        for (operator, by, reason), lines in found.items()
    )


class _Missing(NamedTuple):
    """Why torch's exporter cannot translate a call, and the operators it decomposes the call into, if any."""

    reason: str
    parts: str = ""


def _missing(
    graph: torch.export.ExportedProgram, translated: Set[OpOverload], supported: Set[OpOverload] = frozenset()
) -> dict[str, _Missing]:
    """Return what torch's exporter cannot translate, by the name of the call in the graph.

    An operator that belongs to no call of the graph is listed under its own name.

    Parameters
    ----------
    translated : set of OpOverload
        Operators that a registration or the user's table translates.
    supported : set of OpOverload
        Operators that the kernel library translates as well.
    """

    def taken(node: torch.fx.Node) -> bool:
        row = library.find(qualified_name(target_of(node))) if node.target in supported else None
        return row is None or _takes_types(node, row)

    calls = dict(call_nodes(graph))
    kept = {*translated, *supported, *opaque.translation_table()}
    # torch's decompositions may raise for an operator that they do not know, so it is kept whole.
    stopping = (node for node in calls.values() if not rewriting.obstacle(node) and not rewriting.is_constant(node))
    targets = {target_of(node) for node in stopping} - kept
    foreign = {target for target in targets if not is_native(target)}
    reasons = {name: _Missing(_LACKING) for name, node in calls.items() if node.target in foreign}
    for node in untranslated(graph, kept | foreign, taken):
        call = mark_of(node)
        part = qualified_name(node.target) if isinstance(node.target, OpOverload) else str(node.target)
        whole = qualified_name(target_of(calls[call])) if call else part
        # prims::sin of aten::sin: naming the primitive would tell the user nothing.
        known = part.partition("::")[2] == whole.partition("::")[2]
        parts = "" if known else f"torch makes {part} of it"
        reasons.setdefault(call or part, _Missing(f"{parts}; {_LACKING} of that" if parts else _LACKING, parts))
    return reasons


def _describe_error(error: Exception) -> str:
    """Return an explanation of an exception, or its message with the line of the model's code that caused it."""
    meaning = explain_error(error)
    if meaning is not None:
        return str(meaning)
    root = list(causes(error))[-1]
    folders = [Path(torch.__file__).parent, Path(__file__).parent]
    frames = [
        frame
        for cause in causes(error)
        for frame in traceback.extract_tb(cause.__traceback__)
        if not any(folder in Path(frame.filename).parents for folder in folders) and not frame.filename.startswith("<")
    ]
    where = f" ({frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line})" if frames else ""
    return f"{type(root).__name__}: {next(iter(str(root).splitlines()), '')}{where}"


def _verdict(
    node: torch.fx.Node, missing: _Missing | None, lacking: bool, table: Mapping[Any, Any], row: Row | None
) -> tuple[str, By, str]:
    target, name = target_of(node), _operator(node)
    if opaque.is_fallback(target):
        return (name, "kernel", _kernel_name(row)) if row else (name, "fallback", "torch.export cannot trace it")
    if target in table:
        return name, "registration", f"custom_translation_table: {_source_name(table[target])}"
    source = registered_source(target)
    if source is not None:
        return name, "registration", _source_name(source)
    if row and _is_supported(node, row, missing is not None):
        return name, "kernel", _kernel_name(row)
    if missing is None:
        return name, "torch", ""
    if not lacking:
        return name, "kernel", missing.parts
    refusal = rewriting.refusal(node, {name.partition("::")[0]})
    reason = missing.reason
    return (name, "nothing", f"{reason}, and {refusal}") if refusal else (name, "fallback", reason)


def _operator(node: torch.fx.Node) -> str:
    """Return the qualified name of the operator that the model's code calls."""
    target = target_of(node)
    return opaque.called_operator(node) if opaque.is_fallback(target) else qualified_name(target)


def _is_supported(node: torch.fx.Node, row: Row, missing: bool) -> bool:
    """Return whether the kernel library exports a call.

    It does where torch has no translation and the call can be rewritten, or where its row replaces torch's translation.
    """
    fits = not rewriting.obstacle(node) if missing else row.replaces and library.takes(node)
    return fits and _takes_types(node, row)


def _takes_types(node: torch.fx.Node, row: Row) -> bool:
    values = [item.meta.get("val") for item in node.all_input_nodes]
    has_complex = any(isinstance(value, torch.Tensor) and value.is_complex() for value in values)
    return row.takes_complex or not has_complex


def _kernel_name(row: Row) -> str:
    source = row.registration.source
    return _source_name(source) if isinstance(source, Op) else "ops of pyops.kernels"


def _source_name(source: Any) -> str:
    if isinstance(source, Op):
        return f"the op {source.signature.qualified_name}"
    return f"the function {getattr(source, '__name__', type(source).__name__)}"
