"""Export of a model with the calls that torch's exporter cannot translate rewritten as fallback calls.

The plain export is tried first. If it fails, the model is captured as a functional graph of the operators that
its code calls. Calls without a translation are rewritten, and then, one operator after the other, those at which the
exporter fails.
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
    model: Model, args: tuple[Any, ...], *, backends: opaque.Backends, verified: bool = False, **arguments: Any
) -> Program:
    """Export a model, with unsupported calls left to the backends.

    Parameters
    ----------
    backends : opaque.Backends
        What may compute calls that torch's exporter cannot translate.
    verified : bool
        Compare every distinct call with ONNX Runtime, and let those that differ fall back.
    model, args, **arguments
        As for `exporters._dynamo.capture`.

    Returns
    -------
    Program
        ``program.fallbacks`` lists what fell back.

    Raises
    ------
    ExportError
        A call cannot be exported; the message says why.
    Exception
        Any error of torch's exporter that is not about an operator.
    """
    if backends.torch:
        register_fallback()
    if arguments.get("dynamic_axes") and not isinstance(model, torch.export.ExportedProgram):
        shapes, args, kwargs = shapes_of_axes(model, args, arguments.get("kwargs") or {}, arguments)
        arguments |= {"dynamic_shapes": shapes, "dynamic_axes": None, "kwargs": kwargs}
    attempts = Attempts(model, args, arguments, backends)
    failure = None
    try:
        program = _dynamo.capture(model, args, kernels=backends.kernels, **arguments)
    except Exception as error:  # torch's exporter may raise anything
        if _is_user_error(error):
            raise
        failure = error
    if failure is not None:
        # Outside the handler, so that the failure does not become the context of later errors.
        program = attempts.recover(failure)
    if verified and attempts.check(rewritten=failure is not None):
        program = attempts.run()
    return program


def _is_user_error(error: Exception) -> bool:
    """Return whether the user's registration raised the error, or it is about the arguments."""
    return isinstance(error, PyopsError) and error.__cause__ is None and not isinstance(error, NoTranslationError)


def _raised_by_registration(error: Exception) -> bool:
    """Return whether a registered translation raised the error, other than by passing the call on."""
    chain = list(causes(error))
    return any(map(raised_by_translation, chain)) and not any(isinstance(item, NoTranslationError) for item in chain)


class Attempts:
    """Repeated exports of one model, with more calls rewritten for the backends each time."""

    def __init__(
        self, model: Model, args: tuple[Any, ...], arguments: Mapping[str, Any], backends: opaque.Backends
    ) -> None:
        self._backends = backends
        self._model = model
        self._args = args
        self._arguments = dict(arguments)
        self._table: dict[Any, Callable[..., Any]] = self._arguments.pop("custom_translation_table", None) or {}
        self._kwargs = self._arguments.pop("kwargs", None) or {}
        self._kernel_translations = library.translations() if backends.kernels else {}
        # Rewritten although the exporter may have a translation: calls by name, and operators with the reason.
        self._findings: dict[str, Finding] = {}
        self._targets: dict[OpOverload, str] = {}

    def recover(self, failure: Exception) -> Program:
        """Export with unsupported calls rewritten, or raise the failure of the plain export with a note."""
        if self._backends.torch:
            return self.run(failure)
        try:
            return self.run()
        except Exception as error:  # the failure of the plain export says more
            for cause in causes(error):
                if isinstance(cause, NoTranslationError):
                    failure.add_note(str(cause))
        raise failure

    def run(self, failure: Exception | None = None) -> Program:
        """Export with unsupported calls rewritten. If the capture fails, raise `failure` if given."""
        while True:
            try:
                graph = self._graph()
            except Exception as error:  # torch or the model's own code may raise anything
                raise (failure or error) from error
            recorded = self._rewritten(graph)
            table = {**opaque.translation_table(), **self._table}
            try:
                with opaque.emitting_with(self._backends) as left_to_torch:
                    program = _dynamo.capture(
                        graph, (), custom_translation_table=table, kernels=self._backends.kernels, **self._arguments
                    )
            except Exception as error:  # torch's exporter may raise anything
                if _is_user_error(error):
                    raise
                self._choose(graph, error)
            else:
                rename_views(program.model)
                program.fallbacks = fallbacks(recorded, left_to_torch)
                record_capture_strategy(program, graph.graph_module.meta[STRATEGY])
                return program

    def check(self, *, rewritten: bool) -> bool:
        """Find calls whose translations fail or give wrong values, and return whether there are any.

        With `rewritten`, calls that the export has rewritten are left out.
        """
        graph = self._graph()
        if rewritten:
            self._rewritten(graph)
        names = {name for name, node in call_nodes(graph) if not rewriting.refusal(node) and _is_checked(node)}
        args, kwargs = (self._args, self._kwargs) if self._args or self._kwargs else graph.example_inputs
        calls = checking.distinct_calls(graph, args, kwargs, names)
        self._findings = checking.wrong_calls(
            calls, self._table, {**self._arguments, "kernels": self._backends.kernels}
        )
        return bool(self._findings)

    def _graph(self) -> torch.export.ExportedProgram:
        shapes = self._arguments.get("dynamic_shapes")
        return capture_graph(self._model, self._args, self._kwargs, shapes, {*self._table, *registered()})

    def _rewritten(self, graph: torch.export.ExportedProgram) -> list[RecordedCall]:
        """Rewrite the chosen calls and those without a translation, and return a record of each."""
        translated = {*self._table, *registered(), *self._kernel_translations}
        recorded = []
        for number, (name, node) in enumerate(list(call_nodes(graph))):
            target = target_of(node)
            if opaque.is_fallback(target):
                why, call = "torch.export cannot trace it", str(node.args[0])
                recorded.append(RecordedCall(opaque.called_operator(node), source_line(node), why, call))
                continue
            finding = self._findings.get(name)
            why = finding.reason if finding else self._targets.get(target, "")
            if not why and target not in translated and not is_native(target):
                why = "torch's exporter has no translation"
            if not why or self._refusal(node):
                continue
            call = rewriting.rewrite(node, number, by_torch=finding is not None and target in self._kernel_translations)
            recorded.append(RecordedCall(qualified_name(target), source_line(node), why, call, finding))
        for _, module in graphs(graph):
            module.graph.lint()
            module.recompile()
        return recorded

    def _refusal(self, node: torch.fx.Node) -> str:
        """Return why only torch's exporter can translate a call, or ``""`` if a backend can compute it."""
        target = target_of(node)
        if self._backends.kernels and library.find(qualified_name(target)) is not None:
            return rewriting.obstacle(node)
        if not self._backends.torch:
            return "no op of pyops.kernels supports it"
        register_fallback(target.namespace)
        return rewriting.refusal(node)

    def _choose(self, graph: torch.export.ExportedProgram, error: Exception) -> None:
        """Mark the operator at which the exporter failed for rewriting, or raise the error."""
        nodes = dict(call_nodes(graph))
        node = next((nodes[name] for name in calls_at_fault(error) if name in nodes), None)
        if node is None or _raised_by_registration(error):
            raise error
        target = target_of(node)
        why = self._refusal(node)
        if why or target in self._targets:
            raise ExportError(
                f"{qualified_name(target)} cannot fall back: {why or 'torch exporter rejects the fallback too'} "
                f"({source_line(node)})"
            ) from error
        self._targets[target] = "torch's exporter stops at it"


def _is_checked(node: torch.fx.Node) -> bool:
    """Return whether a call's translation is verified; of constants, only complex ones may be translated wrongly."""
    return not rewriting.is_constant(node) or bool(node.meta["val"].is_complex())


_VIEW = re.compile(r"(view_as_real|view_as_complex|resolve_conj)(_\d+)?")


def rename_views(model: onnx_ir.Model) -> None:
    """Rename values that torch named after views of complex tensors after the operators that compute them."""
    values = [value for node in all_nodes(model) for value in node.outputs]
    taken = {value.name for value in [*values, *model.graph.inputs, *model.graph.initializers.values()]}
    for value in values:
        node = value.producer()
        if node is None or not node.domain or not _VIEW.fullmatch(value.name or ""):
            continue
        candidates = itertools.chain([node.op_type], (f"{node.op_type}_{number}" for number in itertools.count(1)))
        value.name = next(name for name in candidates if name not in taken)
        taken.add(value.name)
