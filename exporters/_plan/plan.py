"""The plan of an export: what translates each call, and why.

Several things may translate a call: its answers. They are tried in order, by running them on the call; one that fails
leaves no node behind. torch decomposes only operators without an answer. If a part of one has no answer either, the
operator is preserved, and translated as the user's code calls it.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from pyops._support.progress import step
from pyops.errors import PyopsError

from .._capture.failures import inexpressible
from .._capture.graph_calls import mark_calls, mark_of, source_line
from .._capture.interception import target_of
from .._fallback.fallback_node import emit_fallback
from .._library import translation_order
from .._library.elementwise import floor_of_quotient
from .._library.row_table import Row
from .._library.translation_order import Answer, source_name
from .._lowering.lower import explain_error, untranslated
from .._lowering.translations import no_translation_error, registered, registration_of
from .._report import By
from .._torch.private.onnx_exporter import Exporter, Lowering, RepeatedError, undo_on_failure
from .._torch.private.operators import HigherOrderOperator, OpOverload, is_random, qualified_name, schema_arguments
from .._torch.private.torch_export import graph_modules
from .._torch.private.trees import present_leaves
from ..errors import NoTranslationError, causes
from . import reasons
from .conversion import emit_constant, emit_placeholder, is_sequence, of_number, results, with_pairs
from .graph_rewriting import functional_graph, return_tensors, take_strides_of_values
from .reasons import Decision, Finding, functional_operator, has_complex_input, is_constant

NO_TRANSLATION = "torch's exporter has no translation"


_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Plan(Lowering):
    """The answers for the calls of one export.

    Parameters
    ----------
    captured : ExportedProgram
    kernels, fallback : bool
        Whether the ops of `pyops.kernels`, and nodes that call torch, may compute calls.
    table : mapping
        The user's translations, which win over the registrations.
    explaining : bool
        Emit placeholders for calls that nothing translates, and for those that fall back.
    """

    def __init__(
        self,
        captured: torch.export.ExportedProgram,
        kernels: bool,
        fallback: bool,
        table: Mapping[Any, Callable[..., Any]],
        explaining: bool = False,
    ) -> None:
        self.captured = captured
        self.calls = mark_calls(captured)
        self._uses_kernels, self._falls_back = kernels, fallback
        # By name, because registering an operator of torch again creates another OpOverload.
        self._table = {qualified_name(key): item for key, item in table.items() if isinstance(key, OpOverload)}
        self._explaining = explaining
        self._whole: dict[OpOverload, str] = {}
        self.findings: dict[tuple[str, OpOverload], Finding] = {}
        """What is wrong with the first answers for calls, by the name of the captured call and the operator."""
        self.decisions: list[Decision] = []
        self._count = 0  # of the calls to translate

    def prepare(self, captured: torch.export.ExportedProgram, exporter: Exporter) -> torch.export.ExportedProgram:
        """Decompose the captured program down to calls that have an answer."""
        step("decomposing the graph")
        self.decisions = []
        kernels = translation_order.targets() if self._uses_kernels else ()
        wrong = translation_order.decomposed(captured) if self._uses_kernels else ()
        overruled = {target for _, target in self.findings}
        graph = functional_graph(captured) if self.findings else captured
        while True:
            try:
                program = exporter.decompose(graph, {*registered(), *kernels, *overruled, *self._whole}, wrong)
                missing = self._missing(program, exporter)
            except Exception as error:  # a decomposition may raise anything
                missing = self._stopping(error)
                if not missing:
                    raise
            if not missing:
                return_tensors(program)
                take_strides_of_values(program)
                self._count = sum(isinstance(node.target, OpOverload) for node in _called(program))
                return program
            self._whole |= missing

    def translation(self, node: Node, exporter: Exporter) -> Callable[..., Any]:
        """Return a function that tries the answers for a call one after the other."""
        step("translating calls", len(self.decisions), self._count)
        if node.target is operator.floordiv:
            return floor_of_quotient  # torch's own translation rounds toward zero
        if not isinstance(node.target, OpOverload):
            found = exporter.translation(node)
            if found is not None:
                return found
            if not self._explaining:
                raise inexpressible(node)
            return self._unsupported(node, NO_TRANSLATION)
        return functools.partial(self._translate, node, list(self._answers(node, exporter)))

    def _missing(self, program: torch.export.ExportedProgram, exporter: Exporter) -> dict[OpOverload, str]:
        """Return the operators that must be preserved because a part of them has no answer, with the reasons."""
        found: dict[OpOverload, str] = {}
        for node in _called(program):
            if not isinstance(node.target, (OpOverload, HigherOrderOperator)) or self._has_answer(node, exporter):
                continue
            whole = self._whole_of(node)
            if whole is not None:
                found.setdefault(whole, self._reason_to_keep(node, whole))
        return found

    def _has_answer(self, node: Node, exporter: Exporter) -> bool:
        if exporter.translation(node) is not None:
            return True
        if not isinstance(node.target, OpOverload):
            return False
        target = target_of(node)
        by_user = registration_of(target) is not None and not has_complex_input(node)
        return by_user or self._row(node, target) is not None or is_constant(node)

    def _whole_of(self, node: Node) -> OpOverload | None:
        """Return the operator that a call is a part of, if it is decomposed, and can be preserved."""
        call = self.calls.get(mark_of(node))
        target = functional_operator(target_of(call)) if call is not None else None
        if call is None or target is None or target in self._whole or target == node.target:
            return None
        return target if self._can_be_whole(call, target) else None

    def _can_be_whole(self, call: Node, target: OpOverload) -> bool:
        if self._row(call, target) is not None or is_constant(call):
            return not reasons.against_node(call)
        return self._falls_back and not reasons.against_fallback(call, target)

    def _stopping(self, error: Exception) -> dict[OpOverload, str]:
        """Return the operator at whose call torch's decomposition fails, if it can be preserved.

        Raises
        ------
        NoTranslationError
            The operator cannot be preserved.
        """
        texts = "\n".join(str(cause) for cause in causes(error))
        for place in re.findall(r"While executing %(\w+) :", texts):
            call = next((call for name, call in self.calls.items() if name.endswith(f"/{place}")), None)
            target = functional_operator(target_of(call)) if call is not None else None
            if call is None or target is None or target in self._whole:
                continue
            if self._can_be_whole(call, target):
                return {target: "torch's exporter fails at it"}
            if explain_error(error) is not None:
                return {}
            beginning = str(error).partition("\n")[0]
            fix = "" if self._falls_back else "; exporters.export(..., fallback=True) lets torch compute it"
            raise NoTranslationError(
                f"torch's exporter fails at {qualified_name(target)} ({source_line(call)}): "
                f"{type(error).__name__}: {beginning}{fix}"
            ) from error
        return {}

    def _reason_to_keep(self, part: Node, whole: OpOverload) -> str:
        name = qualified_name(part.target) if isinstance(part.target, OpOverload) else str(part.target)
        # For prims::sin of aten::sin: naming the primitive would not help the user.
        known = name.partition("::")[2] == qualified_name(whole).partition("::")[2]
        reason = f"torch decomposes it into {name}, for which its exporter has no translation"
        return NO_TRANSLATION if known else reason

    def _row(self, node: Node, target: OpOverload) -> Row | None:
        """Return the row of the kernel library for a call, or None."""
        return translation_order.find(qualified_name(target), has_complex_input(node)) if self._uses_kernels else None

    def _answers(self, node: Node, exporter: Exporter) -> Iterator[Answer]:
        """Yield what may translate a call, in the order in which it is tried."""
        if reasons.against_value(node.meta.get("val")):
            return
        target, row = target_of(node), self._row(node, target_of(node))
        finding = self.findings.get((mark_of(node), target))
        if finding is None:
            has_complex = has_complex_input(node)
            if qualified_name(target) in self._table and not has_complex:
                given = self._table[qualified_name(target)]
                yield Answer("registration", f"custom_translation_table: {source_name(given)}", given)
                return
            for answer in translation_order.answers(target, row, exporter.own_translation(node), has_complex):
                if answer.by == "kernel":
                    answer = replace(answer, emit=self._by_kernel(node, target))
                elif answer.by == "torch" and _begins_with_number(node):
                    answer = replace(answer, emit=of_number(answer.emit))
                yield answer
        elif row is not None and target not in translation_order.targets():
            yield Answer("kernel", "ops of pyops.kernels", self._by_kernel(node, target))
        if is_constant(node):
            yield Answer("torch", "it is a constant of the model", lambda *_, **__: emit_constant(node))
        elif self._falls_back and not reasons.against_fallback(node, target):
            yield Answer("fallback", finding.reason if finding else "", self._by_torch(node, target))

    def _translate(self, node: Node, answers: list[Answer], /, *args: Any, **kwargs: Any) -> Any:
        """Emit the nodes of the first answer that supports this call."""
        target = target_of(node)
        errors: list[Exception] = [] if answers else [untranslated(target, source_line(node))]
        for answer in answers:
            if answer.by == "torch" and errors:
                continue  # the row that replaces it has failed, and torch's own is wrong
            if answer.by == "fallback" and errors and self._whole_of(node) is not None:
                break
            try:
                with undo_on_failure():
                    result = answer.emit(*args, **kwargs)
            except Exception as error:  # a translation may raise anything
                if answer.by in ("registration", "fallback"):
                    raise
                errors.append(error)
                continue
            if result is not NotImplemented:
                reason = answer.reason
                if answer.by == "fallback" and not reason:
                    reason = self._whole.get(target) or ("torch's exporter fails at it" if errors else NO_TRANSLATION)
                self._decide(node, answer.by, reason)
                return result
        return self._give_up(node, errors)(*args, **kwargs)

    def _give_up(self, node: Node, errors: list[Exception]) -> Callable[..., Any]:
        """Return a placeholder for a call that has no answer, or raise an error."""
        target = target_of(node)
        whole = self._whole_of(node)
        if whole is not None:
            self._whole[whole] = f"torch decomposes it into {qualified_name(target)}, at which its exporter fails"
            raise RepeatedError
        reason = reasons.against_fallback(node, target) if self._falls_back else ""
        if self._explaining:
            return self._unsupported(node, f"{NO_TRANSLATION}, and it cannot fall back: {reason}")
        if reason:
            called = qualified_name(target_of(self.calls.get(mark_of(node), node)))
            raise NoTranslationError(
                f"{called} cannot fall back: {reason} ({source_line(node)}); register a translation, or change the line"
            )
        if not errors:
            is_users = registration_of(target) is not None
            errors = [no_translation_error(target) if is_users else untranslated(target, source_line(node))]
        error = errors[0]
        numbers = [item for item in node.all_input_nodes if isinstance(item.meta.get("val"), _NUMBERS)]
        if numbers and not isinstance(error, PyopsError):
            raise inexpressible(node) from None  # it names the line
        for other in errors[1:]:
            error.add_note(str(other))
        line = source_line(node)
        if isinstance(error, NoTranslationError) and line not in str(error):
            raise NoTranslationError(f"{error}: {line}") from error
        raise error

    def _unsupported(self, node: Node, reason: str) -> Callable[..., Any]:
        self._decide(node, "unsupported", reason)
        return lambda *_, **__: emit_placeholder(node)

    def _decide(self, node: Node, by: By, reason: str) -> None:
        overload = isinstance(node.target, OpOverload)
        operator = qualified_name(target_of(node)) if overload else str(node.target)
        finding = self.findings.get((mark_of(node), target_of(node))) if overload else None
        self.decisions.append(Decision(mark_of(node), operator, by, reason, source_line(node), finding))

    def _by_kernel(self, node: Node, target: OpOverload) -> Callable[..., Any]:
        def emitted(*args: Any, **kwargs: Any) -> Any:
            names = [item.name for item in schema_arguments(target)]
            pairs = with_pairs((node.args, dict(node.kwargs)), (args, kwargs))
            result = translation_order.emit(target, {**dict(zip(names, pairs[0], strict=False)), **pairs[1]})
            if result is NotImplemented or is_sequence(result, node.meta["val"]):
                return result
            return results(node.meta["val"], iter(present_leaves(result)))

        return emitted

    def _by_torch(self, node: Node, target: OpOverload) -> Callable[..., Any]:
        def emitted(*args: Any, **kwargs: Any) -> Any:
            if self._explaining:
                return emit_placeholder(node)
            number = len(self.decisions) if is_random(target) else None
            return results(node.meta["val"], iter(emit_fallback(node, target, args, kwargs, number)))

        return emitted


def _called(program: torch.export.ExportedProgram) -> Iterator[Node]:
    """Yield the nodes that call a function, in the graph and its subgraphs."""
    for module in graph_modules(program).values():
        yield from (node for node in module.graph.nodes if node.op == "call_function")


def _begins_with_number(node: Node) -> bool:
    """Return whether a call passes a number for its first tensor; torch's own translations take one for later ones."""
    assert isinstance(node.target, OpOverload)
    return bool(node.args) and isinstance(node.args[0], (int, float)) and schema_arguments(node.target)[0].is_tensor
