"""What the messages of torch and onnxscript mean, and what to type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyops.errors import PyopsError

from .errors import ExportError
from .torch_ops import find_overload
from .translating.nodes import symbolic_message

_Match = re.Match[str]


def explained(error: BaseException) -> ExportError | None:
    """An error of torch's exporters in the user's words, with the original as its cause; None for an unknown one."""
    for cause in causes(error):
        for pattern, explain in _EXPLANATIONS:
            match = pattern.search(str(cause))
            if match is not None:
                meaning = ExportError(explain(match))
                meaning.__cause__ = error
                return meaning
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what led to it, the last first."""
    # One that was raised again has itself among what led to it.
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


@contextmanager
def unwrapped() -> Iterator[None]:
    """Inside the ``with`` block an exception of ours that torch wrapped comes out as itself, and others explained."""
    failure = None
    try:
        yield
    except Exception as error:
        ours = (cause for cause in causes(error) if isinstance(cause, PyopsError))
        failure = next(ours, None) or explained(error)
        if failure is None:
            raise
    if failure is not None:
        # Outside the handler, so that torch's error does not become the exception's context.
        raise failure


def _no_translation(match: _Match) -> str:
    # Torch breaks some operators up into its primitives before it looks for their translations.
    namespace = "aten" if match["namespace"] == "prims" else match["namespace"]
    name = f"{namespace}::{match['name']}"
    overload = match["overload"]
    if overload != "default" and namespace != "prims":
        name += f".{overload}"
    if find_overload(name) is None:
        name = f"{match['namespace']}::{match['name']}"
    return (
        f"torch's exporter has no translation for {name}, which the model calls; give it one before the export: "
        f'exporters.translate("{name}", op), with an Op of yours or a function that calls exporters.opset(...)'
    )


def _no_fake(match: _Match) -> str:
    name = match["name"]
    return (
        f"torch cannot trace {name}, since nobody told it the shape of what it returns; write "
        f"@{name.rpartition(':')[2]}.register_fake (@torch.library.register_fake({name!r}) where it has no such "
        f"decorator), or declare it with @pyops.onnx_op and a shape function, and "
        f"exporters.custom_op(op, {name!r})"
    )


def _writes(match: _Match) -> str:
    name = f"{match['namespace']}::{match['name']}"
    return (
        f"{name} writes to its arguments, which no node of an ONNX model can; let it return its result instead "
        "(mutates_args=()), and use that in the model"
    )


def _symbolic(match: _Match) -> str:
    return symbolic_message("torch.onnx.ops.symbolic", match["name"])


def _optional_tensors(match: _Match) -> str:
    return (
        "TorchScript cannot trace a call with a list of optional tensors, which torch.onnx.ops.symbolic makes; leave "
        "out dynamo=False, or call an operator of exporters.custom_op instead"
    )


def _depends_on_data(match: _Match) -> str:
    line = " ".join((match["line"] or "").split())
    where = f" ({line})" if line else ""
    return (
        f"the model asks in Python about values that only a run knows{where}: an `if`, a loop, a size or an error that "
        "depends on data, of which a graph holds one side alone; use torch.where or torch.cond, and give sizes as "
        "arguments"
    )


def _unsupported(match: _Match) -> str:
    name, opset = match["name"], match["opset"]
    return (
        f"the TorchScript exporter has no translation for {name} in opset {opset}; give it one before the export: "
        f'exporters.translate("{name}", op), or export with another opset_version'
    )


def _unknown_op(match: _Match) -> str:
    domain = match["domain"]
    return (
        f"the domain {domain!r} has no operator {match['name']}; for one that is declared with @pyops.onnx_op, take "
        f"the domain from exporters.opset({domain!r}), after the module that declares it is imported"
    )


def _no_schema(match: _Match) -> str:
    return (
        f"onnx has no schema of {match['name']}; exporters.register_schemas() gives it those of the declared ops, once "
        "the modules that declare them are imported"
    )


_OVERLOAD = r"<OpOverload\(op='(?P<namespace>\w+)\.(?P<name>\w+)', overload='(?P<overload>\w+)'\)>"

_EXPLANATIONS: tuple[tuple[re.Pattern[str], Callable[[_Match], str]], ...] = (
    (re.compile(rf"No ONNX function found for {_OVERLOAD}"), _no_translation),
    (re.compile(r"There was no fake impl registered for (<CustomOpDef\()?(?P<name>\w+::\w+)"), _no_fake),
    # Torch wraps an operator that writes to its arguments, and then fails to look the wrapper up.
    (re.compile(rf"<bound method OpOverload\.name of {_OVERLOAD}>"), _writes),
    (
        re.compile(
            r"(Could not (guard on|extract specialized integer from) data-dependent expression|DataDependentOutput"
            r"|DynamicOutputShape)(.*?The following call raised this error:\n\s*(?P<line>[^\n]*\n[^\n]*))?",
            re.DOTALL,
        ),
        _depends_on_data,
    ),
    (re.compile(r"Unsupported attribute type for (?P<name>\w+): <class 'torch\.Sym"), _symbolic),
    (re.compile(r"unsupported input list type: Tensor\?"), _optional_tensors),
    (
        re.compile(r"Exporting the operator '(?P<name>[\w:.]+)' to ONNX opset version (?P<opset>\d+) is not"),
        _unsupported,
    ),
    (re.compile(r"'(?P<name>\w+)' is not a known op in '(?P<domain>[^']*)'"), _unknown_op),
    (re.compile(r"No (schema|Op) registered for '?(?P<name>[\w.:]*\w)"), _no_schema),
)
