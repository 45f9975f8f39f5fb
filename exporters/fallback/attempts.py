"""Exporting a model, with the calls that torch's exporter cannot translate turned into fallback calls.

The plain export comes first, and where it works there is nothing to do. Otherwise the model is captured as a
functional graph of the operators that its code names, those without a translation are rewritten, and what the
exporter still stops at, one operator after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import torch

from pyops.errors import PyopsError

from .. import dynamo
from .._torch_private.exporter import torchlib_read_once
from .._torch_private.operators import OpOverload, qualified_name
from ..errors import ExportError
from ..explanations import causes
from ..kernels import library
from ..program import Model, Program
from ..torch_ops import is_native
from ..translating.translations import NoTranslationError, raised_by_translation, registered
from . import checking, opaque, rewriting
from .capturing import capture_graph
from .kernel import use_fallback
from .names import rename_views
from .recording import Recording
from .sources import source_line

_MARK = "pyops_call"

Chosen = dict[str, str]
"""The calls to rewrite, by name, and why."""


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
    if carriers.torch:
        use_fallback()
    attempts = Attempts(model, args, arguments, carriers)
    program, failure = None, None
    with torchlib_read_once():
        try:
            program = dynamo.capture(model, args, kernels=carriers.kernels, **arguments)
        except Exception as error:
            if _is_ours(error):
                raise
            failure = error
        if program is None:
            program = attempts.run(failure) if carriers.torch else attempts.by_kernels(failure)
        if program is None:
            assert failure is not None
            raise failure
        if verified and attempts.check():
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
    """Exports of one model, with more and more calls rewritten.

    Parameters
    ----------
    model, args, arguments
        As for `exporters.dynamo.capture`.
    carriers : opaque.Carriers
        What may carry the calls.
    """

    def __init__(
        self, model: Model, args: tuple[Any, ...], arguments: Mapping[str, Any], carriers: opaque.Carriers
    ) -> None:
        self._carriers = carriers
        self._model = model
        self._args = args
        self._arguments = dict(arguments)
        self._chosen: Chosen = {}
        self._findings: dict[str, checking.Finding] = {}
        self._targets: dict[OpOverload, str] = {}
        self._is_rewriting = False
        self._table: dict[Any, Callable[..., Any]] = self._arguments.pop("custom_translation_table", None) or {}
        self._kwargs = self._arguments.pop("kwargs", None) or {}
        self._carried = library.translations() if carriers.kernels else {}

    def run(self, failure: Exception | None = None) -> Program:
        """Export, rewriting what cannot be translated.

        Parameters
        ----------
        failure : Exception, optional
            What the plain export stopped at, raised again where nothing else can be done.
        """
        self._is_rewriting = True
        while True:
            try:
                graph = self.functional()
            except Exception as error:
                raise (failure or error) from error
            record = self._rewritten(graph)
            try:
                with opaque.carried_by(self._carriers) as left_to_torch:
                    program = self._captured(graph)
            except Exception as error:
                if _is_ours(error):
                    raise
                self._choose(graph, error)
            else:
                rename_views(program.model)
                program.fallbacks = record.fallbacks(left_to_torch)
                return program

    def _captured(self, graph: torch.export.ExportedProgram) -> Program:
        table = {**opaque.translation_table(), **self._table}
        kernels = self._carriers.kernels
        return dynamo.capture(graph, (), custom_translation_table=table, kernels=kernels, **self._arguments)

    def by_kernels(self, failure: Exception | None) -> Program | None:
        """Export with ops of `pyops.kernels`; None, and a note on what the plain export stopped at, if they cannot."""
        try:
            return self.run()
        except Exception as error:
            reasons = (cause for cause in causes(error) if isinstance(cause, NoTranslationError))
            if failure is not None:
                for reason in reasons:
                    failure.add_note(str(reason))
            return None

    def check(self) -> bool:
        """Choose the calls that are wrong or refused; whether there are any."""
        graph = self.functional()
        if self._is_rewriting:
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
        passed = {**self._arguments, "kernels": self._carriers.kernels}
        self._findings = checking.wrong_calls(calls, self._table, passed)
        self._chosen |= {name: finding.reason for name, finding in self._findings.items()}
        return bool(self._findings)

    def functional(self) -> torch.export.ExportedProgram:
        """The model as a functional graph of the operators that its code calls, each marked with its name."""
        translated = {*self._table, *registered()}
        shapes = self._arguments.get("dynamic_shapes")
        graph = capture_graph(self._model, self._args, self._kwargs, shapes, translated)
        for name, node in rewriting.call_nodes(graph):
            node.meta["custom"] = {**(node.meta.get("custom") or {}), _MARK: name}
        return graph

    def _rewritten(self, graph: torch.export.ExportedProgram) -> Recording:
        """Rewrite the calls that are chosen, and those that nobody translates."""
        lacking = _lacking({*self._table, *registered(), *self._carried})
        record = Recording()
        for number, (name, node) in enumerate(list(rewriting.call_nodes(graph))):
            target = node.target
            assert isinstance(target, OpOverload)
            if opaque.is_fallback(target):
                record.add(opaque.called(node), node, "torch.export cannot trace it", str(node.args[0]))
                continue
            why = self._chosen.get(name) or self._targets.get(target) or lacking(target)
            if not why or self._refusal(node):
                continue
            constant = rewriting.is_constant(node)
            call = rewriting.rewrite(node, number, by_torch=name in self._findings and target in self._carried)
            if not constant:
                record.add(qualified_name(target), node, why, call, self._findings.get(name))
        for _, module in rewriting.graphs(graph):
            module.graph.lint()
            module.recompile()
        return record

    def _refusal(self, node: torch.fx.Node) -> str:
        """Why nothing but torch's exporter may carry a call; empty where something may."""
        assert isinstance(node.target, OpOverload)
        if self._carriers.kernels and library.find(qualified_name(node.target)) is not None:
            return rewriting.unfitness(node)
        if not self._carriers.torch:
            return "no op of pyops.kernels carries it"
        use_fallback(qualified_name(node.target).partition("::")[0])
        return rewriting.refusal(node)

    def _choose(self, graph: torch.export.ExportedProgram, error: Exception) -> None:
        """Choose the operator at which the exporter stopped, or raise what it said."""
        marked = node_at_fault(error)
        nodes = dict(rewriting.call_nodes(graph))
        name = next((name for name in marked if name in nodes), None)
        if name is None or _is_of_a_registration(error):
            raise error
        node = nodes[name]
        target = node.target
        assert isinstance(target, OpOverload)
        why = self._refusal(node)
        if why or target in self._targets:
            raise ExportError(
                f"{qualified_name(target)} cannot fall back: {why or 'torch exporter refuses that too'} "
                f"({source_line(node)})"
            ) from error
        self._targets[target] = "torch's exporter stops at it"


def _lacking(translated: Set[OpOverload]) -> Callable[[OpOverload], str]:
    """Why nobody translates an operator; empty where somebody may."""
    return lambda target: "" if target in translated or is_native(target) else "torch's exporter has no translation"


def _is_checked(node: torch.fx.Node) -> bool:
    """Whether a call's translation is compared; of constants, the exporter's complex ones alone may be wrong."""
    return not rewriting.is_constant(node) or bool(node.meta["val"].is_complex())


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
