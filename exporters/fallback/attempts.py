"""Exporting a model, with the calls that torch's exporter cannot translate turned into fallback calls.

The plain export comes first, and where it works there is nothing to do. Otherwise the model is captured as a
functional graph of the operators that its code names, those without a translation are rewritten, and what the
exporter still stops at, one operator after the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pyops.errors import PyopsError

from .. import dynamo
from .._torch_private import OpOverload, can_decompose, own_translation, qualified_name
from ..errors import ExportError
from ..explanations import causes
from ..program import Model, Program
from ..translations import NoTranslationError, registered
from . import opaque, rewriting
from .capturing import capture_graph
from .kernel import use_fallback
from .record import Fallback
from .sources import source_line

_MARK = "pyops_call"

Chosen = dict[str, str]
"""The calls to rewrite, by name, and why."""


def export(model: Model, args: tuple[Any, ...], **arguments: Any) -> Program:
    """Export a model whatever its operators.

    Parameters
    ----------
    model, args, **arguments
        As for `exporters.dynamo.capture`.

    Returns
    -------
    Program
        With what fell back in ``program.fallbacks``.

    Raises
    ------
    ExportError
        Something cannot be had, for reasons that the message gives.
    Exception
        What torch's exporter says, where no operator is at fault.
    """
    use_fallback()
    try:
        return dynamo.capture(model, args, **arguments)
    except Exception as error:
        if _is_ours(error):
            raise
        plain = error
    return Attempts(model, args, arguments).run(plain)


def _is_ours(error: Exception) -> bool:
    """Whether a registration of the user's raised it, or it is about the arguments."""
    return isinstance(error, PyopsError) and error.__cause__ is None and not isinstance(error, NoTranslationError)


class Attempts:
    """Exports of one model, with more and more calls rewritten.

    Parameters
    ----------
    model, args, arguments
        As for `exporters.dynamo.capture`.
    """

    def __init__(self, model: Model, args: tuple[Any, ...], arguments: Mapping[str, Any]) -> None:
        self._model = model
        self._args = args
        self._arguments = dict(arguments)
        self._chosen: Chosen = {}
        self._targets: dict[OpOverload, str] = {}
        self._table: dict[Any, Callable[..., Any]] = self._arguments.pop("custom_translation_table", None) or {}
        self._kwargs = self._arguments.pop("kwargs", None) or {}

    def run(self, failure: Exception | None = None) -> Program:
        """Export, rewriting what cannot be translated.

        Parameters
        ----------
        failure : Exception, optional
            What the plain export stopped at, raised again where nothing else can be done.
        """
        while True:
            try:
                graph = self.functional()
            except Exception as error:
                raise (failure or error) from error
            fallbacks = self._rewritten(graph)
            try:
                table = {**opaque.translation_table(), **self._table}
                program = dynamo.capture(graph, (), custom_translation_table=table, **self._arguments)
            except Exception as error:
                if _is_ours(error):
                    raise
                self._choose(graph, error)
            else:
                program.fallbacks = fallbacks
                return program

    def functional(self) -> torch.export.ExportedProgram:
        """The model as a functional graph of the operators that its code calls, each marked with its name."""
        graph = capture_graph(self._model, self._args, self._kwargs, self._arguments.get("dynamic_shapes"))
        for name, node in rewriting.call_nodes(graph):
            node.meta["custom"] = {**(node.meta.get("custom") or {}), _MARK: name}
        return graph

    def _rewritten(self, graph: torch.export.ExportedProgram) -> tuple[Fallback, ...]:
        """Rewrite the calls that are chosen, and those that nobody translates."""
        lacking = _lacking(self._table)
        found: dict[tuple[str, str], list[str]] = {}
        for number, (name, node) in enumerate(list(rewriting.call_nodes(graph))):
            target = node.target
            assert isinstance(target, OpOverload)
            why = self._chosen.get(name) or self._targets.get(target) or lacking(target)
            if not why or opaque.is_fallback(target):
                if opaque.is_fallback(target):
                    found.setdefault((opaque.called(node), "torch.export cannot trace it"), []).append(source_line(node))
                continue
            namespace = qualified_name(target).partition("::")[0]
            use_fallback(namespace)
            if rewriting.refusal(node):
                continue
            found.setdefault((qualified_name(target), why), []).append(source_line(node))
            rewriting.rewrite(node, number)
        for _, module in rewriting.graphs(graph):
            module.graph.lint()
            module.recompile()
        return tuple(
            Fallback(name, len(lines), tuple(dict.fromkeys(filter(None, lines))), why, _replacement(name))
            for (name, why), lines in found.items()
        )

    def _choose(self, graph: torch.export.ExportedProgram, error: Exception) -> None:
        """Choose the operator at which the exporter stopped, or raise what it said."""
        marked = node_at_fault(error)
        nodes = dict(rewriting.call_nodes(graph))
        name = next((name for name in marked if name in nodes), None)
        if name is None:
            raise error
        node = nodes[name]
        target = node.target
        assert isinstance(target, OpOverload)
        why = rewriting.refusal(node)
        if why or target in self._targets:
            raise ExportError(
                f"{qualified_name(target)} cannot fall back: {why or 'torch exporter refuses that too'} "
                f"({source_line(node)})"
            ) from error
        self._targets[target] = "torch's exporter stops at it"


def _lacking(table: Mapping[Any, Any]) -> Callable[[OpOverload], str]:
    """Why nobody translates an operator; empty where somebody may."""
    decomposed = torch.export.default_decompositions()
    translated = {*table, *registered()}

    def why(target: OpOverload) -> str:
        if target in translated or target in decomposed or can_decompose(target) or own_translation(target):
            return ""
        return "torch's exporter has no translation"

    return why


def node_at_fault(error: BaseException) -> list[str]:
    """The names of the marked calls that an exception of torch's exporter is about, the likeliest first.

    The exporter's functions have the node that they work on in a local variable.
    """
    found: list[str] = []
    for cause in causes(error):
        trace = cause.__traceback__
        while trace is not None:
            values = trace.tb_frame.f_locals
            for item in (values.get("node"), values.get("n")):
                mark = (item.meta.get("custom") or {}).get(_MARK) if isinstance(item, torch.fx.Node) else None
                if mark:
                    found.insert(0, mark)
            trace = trace.tb_next
    return found


def _replacement(operator: str) -> str:
    return f'exporters.translate("{operator}", op), with an Op of yours or a function that emits ONNX nodes'

