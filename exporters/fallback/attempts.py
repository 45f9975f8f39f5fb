"""Exporting a model, with the calls that torch's exporter cannot translate turned into fallback calls.

The plain export comes first, and where it works there is nothing to do. Otherwise the model is captured as a
functional graph of the operators that its code names, those without a translation are rewritten, and what the
exporter still stops at, one operator after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pyops.errors import PyopsError

from .. import dynamo
from .._torch_private import OpOverload, can_decompose, own_translation, qualified_name, torchlib_read_once
from ..errors import ExportError
from ..explanations import causes
from ..program import Model, Program
from ..translations import NoTranslationError, registered
from . import checking, opaque, rewriting, rule
from .capturing import capture_graph
from .kernel import use_fallback
from .names import rename_views
from .record import Fallback
from .recording import Recording
from .sources import source_line

_MARK = "pyops_call"

Chosen = dict[str, str]
"""The calls to rewrite, by name, and why."""


def export(model: Model, args: tuple[Any, ...], *, verified: bool = False, **arguments: Any) -> Program:
    """Export a model whatever its operators.

    Parameters
    ----------
    verified : bool
        Whether every distinct call is compared with ONNX Runtime, and falls back where that differs.
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
    attempts = Attempts(model, args, arguments)
    program, failure = None, None
    try:
        program = dynamo.capture(model, args, **arguments)
    except Exception as error:
        if _is_ours(error):
            raise
        failure = error
    with torchlib_read_once():
        if program is None:
            program = attempts.run(failure)
        if verified and attempts.check():
            program = attempts.run()
    return program


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
        self._findings: dict[str, checking.Finding] = {}
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
                rename_views(program.model)
                program.fallbacks = fallbacks
                return program

    def check(self) -> bool:
        """Choose the calls that are wrong or refused; whether there are any."""
        graph = self.functional()
        self._rewritten(graph)

        def named(node: torch.fx.Node) -> str | None:
            if not isinstance(node.target, OpOverload) or opaque.is_fallback(node.target):
                return None
            return mark_of(node) if mark_of(node) in eligible else None

        eligible = {
            name for name, node in rewriting.call_nodes(graph) if not rewriting.refusal(node) and _is_checked(node)
        }
        args, kwargs = (self._args, self._kwargs) if self._args or self._kwargs else graph.example_inputs
        calls = checking.distinct_calls(graph, args, kwargs, named)
        self._findings = checking.wrong_calls(calls, self._table, self._arguments)
        self._chosen |= {name: finding.reason for name, finding in self._findings.items()}
        return bool(self._findings)

    def functional(self) -> torch.export.ExportedProgram:
        """The model as a functional graph of the operators that its code calls, each marked with its name."""
        graph = capture_graph(self._model, self._args, self._kwargs, self._arguments.get("dynamic_shapes"))
        for name, node in rewriting.call_nodes(graph):
            node.meta["custom"] = {**(node.meta.get("custom") or {}), _MARK: name}
        return graph

    def _rewritten(self, graph: torch.export.ExportedProgram) -> tuple[Fallback, ...]:
        """Rewrite the calls that are chosen, and those that nobody translates."""
        lacking = _lacking(self._table)
        record = Recording()
        for number, (name, node) in enumerate(list(rewriting.call_nodes(graph))):
            target = node.target
            assert isinstance(target, OpOverload)
            if opaque.is_fallback(target):
                record.add(opaque.called(node), node, "torch.export cannot trace it")
                continue
            why = self._chosen.get(name) or self._targets.get(target) or lacking(target)
            if why:
                use_fallback(qualified_name(target).partition("::")[0])
            if not why or rewriting.refusal(node):
                continue
            if not rewriting.is_constant(node):
                record.add(qualified_name(target), node, why, self._findings.get(name))
            rewriting.rewrite(node, number)
        for _, module in rewriting.graphs(graph):
            module.graph.lint()
            module.recompile()
        return record.fallbacks()

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


def _is_checked(node: torch.fx.Node) -> bool:
    """Whether a call's translation is compared: its outcome must be determined, and may be wrong."""
    assert isinstance(node.target, OpOverload)
    if rewriting.is_constant(node):  # the exporter's complex constants are tensors that ONNX Runtime lacks
        return bool(node.meta["val"].is_complex())
    return not rule.is_arbitrary(node.target)


def mark_of(node: torch.fx.Node) -> str | None:
    """The name that `Attempts.functional` gave the call that a node is, or is made of."""
    return (node.meta.get("custom") or {}).get(_MARK)


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
                mark = mark_of(item) if isinstance(item, torch.fx.Node) else None
                if mark:
                    found.insert(0, mark)
            trace = trace.tb_next
    return found
