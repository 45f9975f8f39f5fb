"""Exporting a model, with the calls that torch's exporter cannot translate turned into fallback calls.

The plain export comes first, and where it works there is nothing to do. Otherwise the model is captured as a
functional graph of the operators that its code names, those without a translation are rewritten, and what the
exporter still stops at, one operator after the other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir
import torch

from pyops.errors import PyopsError

from .. import _dynamo
from .._finishing.fallbacks import Finding, RecordedCall, fallbacks
from .._finishing.nodes import all_nodes
from .._finishing.program import Model, Program
from .._library import library
from .._lowering.explanations import causes
from .._lowering.translations import NoTranslationError, raised_by_translation, registered
from .._torch.operators import is_native
from .._torch_private.exporter import record_capture_strategy, shapes_of_axes
from .._torch_private.operators import OpOverload, qualified_name
from ..errors import ExportError
from . import checking, opaque, rewriting
from .capturing import STRATEGY, capture_graph
from .kernel import register_fallback
from .named_calls import call_nodes, calls_at_fault, graphs, target_of
from .sources import source_line


def export(
    model: Model, args: tuple[Any, ...], *, carriers: opaque.Carriers, verified: bool = False, **arguments: Any
) -> Program:
    """Export a model whatever its operators.

    Parameters
    ----------
    carriers : opaque.Carriers
        What may carry the calls that torch's exporter cannot translate.
    verified : bool
        Whether every distinct call is compared with ONNX Runtime, and falls back where that differs.
    model, args, **arguments
        As for `exporters._dynamo.capture`.

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
    if carriers.torch:
        register_fallback()
    if arguments.get("dynamic_axes") and not isinstance(model, torch.export.ExportedProgram):
        shapes, args, kwargs = shapes_of_axes(model, args, arguments.get("kwargs") or {}, arguments)
        arguments |= {"dynamic_shapes": shapes, "dynamic_axes": None, "kwargs": kwargs}
    attempts = Attempts(model, args, arguments, carriers)
    failure = None
    try:
        program = _dynamo.capture(model, args, kernels=carriers.kernels, **arguments)
    except Exception as error:  # whatever torch's exporter stops at
        if _is_ours(error):
            raise
        failure = error
    if failure is not None:
        # Outside the handler, so that it does not become the context of what is raised here.
        program = attempts.after(failure)
    if verified and attempts.check(rewritten=failure is not None):
        program = attempts.run()
    return program


def _is_ours(error: Exception) -> bool:
    """Whether a registration of the user's raised it, or it is about the arguments."""
    return isinstance(error, PyopsError) and error.__cause__ is None and not isinstance(error, NoTranslationError)


def _is_of_a_registration(error: Exception) -> bool:
    """Whether a registered translation raised it, and did not leave the call to others."""
    chain = list(causes(error))
    return any(map(raised_by_translation, chain)) and not any(isinstance(item, NoTranslationError) for item in chain)


class Attempts:
    """Exports of one model, with more and more calls rewritten for the carriers."""

    def __init__(
        self, model: Model, args: tuple[Any, ...], arguments: Mapping[str, Any], carriers: opaque.Carriers
    ) -> None:
        self._carriers = carriers
        self._model = model
        self._args = args
        self._arguments = dict(arguments)
        self._table: dict[Any, Callable[..., Any]] = self._arguments.pop("custom_translation_table", None) or {}
        self._kwargs = self._arguments.pop("kwargs", None) or {}
        self._carried = library.translations() if carriers.kernels else {}
        # What is rewritten although the exporter may have a translation: calls by name, and operators with the reason.
        self._findings: dict[str, Finding] = {}
        self._targets: dict[OpOverload, str] = {}

    def after(self, failure: Exception) -> Program:
        """Export, rewriting what cannot be translated; or raise what the plain export stopped at, with a note."""
        if self._carriers.torch:
            return self.run(failure)
        try:
            return self.run()
        except Exception as error:  # what the plain export stopped at is raised
            for cause in causes(error):
                if isinstance(cause, NoTranslationError):
                    failure.add_note(str(cause))
        raise failure

    def run(self, failure: Exception | None = None) -> Program:
        """Export, rewriting what cannot be translated; the failure, if given, is raised where nothing is captured."""
        while True:
            try:
                graph = self._graph()
            except Exception as error:  # whatever torch or the model's own code raises
                raise (failure or error) from error
            recorded = self._rewritten(graph)
            table = {**opaque.translation_table(), **self._table}
            try:
                with opaque.carried_by(self._carriers) as left_to_torch:
                    program = _dynamo.capture(
                        graph, (), custom_translation_table=table, kernels=self._carriers.kernels, **self._arguments
                    )
            except Exception as error:  # whatever torch's exporter stops at
                if _is_ours(error):
                    raise
                self._choose(graph, error)
            else:
                rename_views(program.model)
                program.fallbacks = fallbacks(recorded, left_to_torch)
                record_capture_strategy(program, graph.graph_module.meta[STRATEGY])
                return program

    def check(self, *, rewritten: bool) -> bool:
        """Find calls that are wrong or refused, but for those that the export has rewritten; whether there are any."""
        graph = self._graph()
        if rewritten:
            self._rewritten(graph)
        names = {name for name, node in call_nodes(graph) if not rewriting.refusal(node) and _is_checked(node)}
        args, kwargs = (self._args, self._kwargs) if self._args or self._kwargs else graph.example_inputs
        calls = checking.distinct_calls(graph, args, kwargs, names)
        self._findings = checking.wrong_calls(
            calls, self._table, {**self._arguments, "kernels": self._carriers.kernels}
        )
        return bool(self._findings)

    def _graph(self) -> torch.export.ExportedProgram:
        shapes = self._arguments.get("dynamic_shapes")
        return capture_graph(self._model, self._args, self._kwargs, shapes, {*self._table, *registered()})

    def _rewritten(self, graph: torch.export.ExportedProgram) -> list[RecordedCall]:
        """Rewrite the calls that are chosen, and those that nobody translates."""
        translated = {*self._table, *registered(), *self._carried}
        recorded = []
        for number, (name, node) in enumerate(list(call_nodes(graph))):
            target = target_of(node)
            if opaque.is_fallback(target):
                why, call = "torch.export cannot trace it", str(node.args[0])
                recorded.append(RecordedCall(opaque.called(node), source_line(node), why, call))
                continue
            finding = self._findings.get(name)
            why = finding.reason if finding else self._targets.get(target, "")
            if not why and target not in translated and not is_native(target):
                why = "torch's exporter has no translation"
            if not why or self._refusal(node):
                continue
            call = rewriting.rewrite(node, number, by_torch=finding is not None and target in self._carried)
            recorded.append(RecordedCall(qualified_name(target), source_line(node), why, call, finding))
        for _, module in graphs(graph):
            module.graph.lint()
            module.recompile()
        return recorded

    def _refusal(self, node: torch.fx.Node) -> str:
        """Why nothing but torch's exporter may carry a call; empty where something may."""
        target = target_of(node)
        if self._carriers.kernels and library.find(qualified_name(target)) is not None:
            return rewriting.unfitness(node)
        if not self._carriers.torch:
            return "no op of pyops.kernels carries it"
        register_fallback(target.namespace)
        return rewriting.refusal(node)

    def _choose(self, graph: torch.export.ExportedProgram, error: Exception) -> None:
        """Choose the operator at which the exporter stopped, or raise what it said."""
        nodes = dict(call_nodes(graph))
        node = next((nodes[name] for name in calls_at_fault(error) if name in nodes), None)
        if node is None or _is_of_a_registration(error):
            raise error
        target = target_of(node)
        why = self._refusal(node)
        if why or target in self._targets:
            raise ExportError(
                f"{qualified_name(target)} cannot fall back: {why or 'torch exporter refuses that too'} "
                f"({source_line(node)})"
            ) from error
        self._targets[target] = "torch's exporter stops at it"


def _is_checked(node: torch.fx.Node) -> bool:
    """Whether a call's translation is compared; of constants, the exporter's complex ones alone may be wrong."""
    return not rewriting.is_constant(node) or bool(node.meta["val"].is_complex())


_VIEW = re.compile(r"(view_as_real|view_as_complex|resolve_conj)(_\d+)?")


def rename_views(model: onnx_ir.Model) -> None:
    """Name such values after the operators that give them, where torch named them after the views."""
    values = [value for node in all_nodes(model) for value in node.outputs]
    taken = {value.name for value in [*values, *model.graph.inputs, *model.graph.initializers.values()]}
    for value in values:
        node = value.producer()
        if node is None or not node.domain or not _VIEW.fullmatch(value.name or ""):
            continue
        candidates = itertools.chain([node.op_type], (f"{node.op_type}_{number}" for number in itertools.count(1)))
        value.name = next(name for name in candidates if name not in taken)
        taken.add(value.name)
