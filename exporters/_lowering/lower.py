"""Lowering of a captured program by torch's exporter, with a `Lowering` and without optimization, and its errors."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx
import onnx_ir
import torch
from torch.export.graph_signature import ConstantArgument, InputKind

from pyops.errors import PyopsError

from .._torch.private.onnx_exporter import Lowering, RepeatedError, adapted_exporter
from .._torch.private.operators import OpOverload, find_overload, qualified_name
from ..errors import ExportError, NoTranslationError, causes
from .emission_record import Emission, record_emission
from .node_emission import symbolic_message
from .translations import raised_by_translation


def lower(
    program: torch.export.ExportedProgram, lowering: Lowering, arguments: Mapping[str, Any]
) -> tuple[torch.onnx.ONNXProgram, Emission]:
    """Translate a captured program.

    Parameters
    ----------
    lowering : Lowering
        What decomposes and translates the calls.
    arguments : mapping
        As for ``torch.onnx.export``.

    Returns
    -------
    tuple
        The model with the decomposed program, and what the translations emitted.

    Raises
    ------
    ExportError
        A call cannot be translated, or torch has no conversion to the opset version.
    Exception
        Any exception of a translation or a shape function, not wrapped in torch's.
    """
    given = {**arguments, "optimize": False, "verbose": arguments.get("verbose") is True}
    failure: Exception = RepeatedError()
    while isinstance(failure, RepeatedError):
        try:
            with record_emission() as emitted, adapted_exporter(lowering), _unwarned():
                exported = _exported(program, given)
            names = [arguments.get(which) or () for which in ("input_names", "output_names")]
            _name_interface(exported.model.graph, program, *names)
            return exported, emitted
        except Exception as error:  # torch has no common base class for export errors
            failure = unwrapped(error)
    raise failure


def _name_interface(
    graph: onnx_ir.Graph, program: torch.export.ExportedProgram, input_names: Sequence[str], output_names: Sequence[str]
) -> None:
    """Give every input and output a name of its own; torch's exporter gives a value the last one of several."""
    specs = program.graph_signature.input_specs
    inputs = [item.arg for item in specs if item.kind is InputKind.USER_INPUT]
    names = [item.name for item in inputs if not isinstance(item, ConstantArgument)]
    for value, name in zip(graph.inputs, [*input_names, *names[len(input_names) :]], strict=False):
        value.name = name
    seen = set(graph.inputs)
    for place, value in enumerate(graph.outputs):
        if value in seen:
            node = onnx_ir.node("Identity", [value])
            graph.append(node)
            graph.outputs[place] = output = node.outputs[0]
            output.name, output.type, output.shape = f"{value.name}_output_{place}", value.type, value.shape
        seen.add(value)
        if place < len(output_names):
            graph.outputs[place].name = output_names[place]


@contextmanager
def _unwarned() -> Iterator[None]:
    """Context manager: drop warnings about torch's own code, which the user cannot change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*", FutureWarning)
        warnings.filterwarnings("ignore", ".*is deprecated", DeprecationWarning, r"torch\.onnx")
        yield


def _exported(program: torch.export.ExportedProgram, arguments: dict[str, Any]) -> torch.onnx.ONNXProgram:
    wanted = arguments.get("opset_version")
    try:
        exported = torch.onnx.export(program, dynamo=True, **arguments)
    except ValueError as error:
        if not str(error).startswith("Target opset version"):
            raise
        if not 1 <= arguments["opset_version"] <= onnx.defs.onnx_opset_version():
            raise ExportError(
                f"opset_version is {wanted}, but this onnx has opsets 1 to {onnx.defs.onnx_opset_version()}; pass one "
                "of these, or leave out opset_version"
            ) from None
        # torch cannot convert to this version; without a node of ONNX's own, there is nothing to convert.
        exported = torch.onnx.export(program, dynamo=True, **{**arguments, "opset_version": None})
        assert exported is not None
        exported.model.opset_imports[""] = arguments["opset_version"]
    assert exported is not None  # None only with dynamo=False
    version = exported.model.opset_imports.get("")
    if wanted and version != wanted:
        raise ExportError(
            f"torch's exporter makes a model of opset {version}, which it cannot convert to opset {wanted}; leave out "
            "opset_version"
        )
    return exported


def explain_error(error: BaseException) -> ExportError | None:
    """Return an ExportError that explains an error of torch's exporters, or None for an unknown one.

    Its cause is the original error.
    """
    for cause in causes(error):
        for pattern, explain in _EXPLANATIONS:
            match = pattern.search(str(cause))
            if match is not None:
                meaning = ExportError(explain(**match.groupdict()))
                meaning.__cause__ = error
                return meaning
    return None


def unwrapped(error: Exception) -> Exception:
    """Return the error of pyops or of a translation that torch's error wraps, or else its explanation, or the error.

    Raise it outside of the handler, so that torch's error does not become its context.
    """
    for cause in causes(error):
        if isinstance(cause, PyopsError):
            return cause
    explained = explain_error(error)
    if explained is not None:
        return explained
    found = (item for item in causes(error) if isinstance(item, Exception) and raised_by_translation(item))
    return next(found, error)


def untranslated(target: OpOverload, line: str) -> NoTranslationError:
    """Return the error for an operator without a translation, and the line of the user's code that calls it."""
    name = qualified_name(target)
    # torch decomposes some operators into its primitives before it looks for their translations.
    operator = name.partition(".")[0].replace("prims::", "aten::") if name.startswith("prims::") else name
    if find_overload(operator) is None:
        operator = name
    return NoTranslationError(
        f"torch's exporter has no translation for {operator}, which the model calls; register one before the export: "
        f'exporters.register_translation("{operator}", op), with an Op of yours or a function that calls '
        f"exporters.opset(...)\n  {line}".rstrip()
    )


_DEPENDS_ON_DATA = (
    "the model's Python code depends on values that are known only when it runs: an `if`, a loop, a size or an error "
    "depends on data, and a graph has no Python code; use torch.where or torch.cond, and pass sizes as arguments"
)

_OVERLOAD = r"<OpOverload\(op='(?P<namespace>\w+)\.(?P<name>\w+)', overload='(?P<overload>\w+)'\)>"

# Each function is called with the named groups of its pattern.
_EXPLANATIONS: tuple[tuple[re.Pattern[str], Callable[..., str]], ...] = (
    (
        re.compile(r"There was no fake impl registered for (<CustomOpDef\()?(?P<operator>\w+::(?P<name>\w+))"),
        "torch cannot trace {operator}, since it has no fake implementation that gives the shape of its result; write "
        "@{name}.register_fake (@torch.library.register_fake({operator!r}) where it has no such "
        "decorator), or declare it with @pyops.onnx_op and a shape function, and "
        "exporters.custom_op(op, {operator!r})".format,
    ),
    (
        # torch wraps an operator that writes to its arguments, and then fails to find the wrapper.
        re.compile(rf"<bound method OpOverload\.name of {_OVERLOAD}>"),
        "{namespace}::{name} writes to its arguments, which no node of an ONNX model can do; return the result "
        "instead (mutates_args=()), and use it in the model".format,
    ),
    (
        re.compile(
            "Could not (guard on|extract specialized integer from) data-dependent expression|DataDependentOutput"
            "|DynamicOutputShape"
        ),
        lambda: _DEPENDS_ON_DATA,
    ),
    (
        re.compile(r"(?P<name>\w+::\w+)\(\) Expected a value of type 'Optional\[Generator\]'"),
        "the model passes {name} a torch.Generator, which ONNX models do not support; leave the generator out".format,
    ),
    (
        re.compile(r"'(?P<type>\w+)' object has no attribute 'name'.*Error when translating node return", re.DOTALL),
        "the model returns a {type}, which torch's exporter does not support as an output; return torch.tensor(...) "
        "of it, or leave it out".format,
    ),
    (
        re.compile(r"Unsupported attribute type for (?P<name>\w+): <class 'torch\.Sym"),
        functools.partial(symbolic_message, "torch.onnx.ops.symbolic"),
    ),
    (
        re.compile(r"Exporting the operator '(?P<name>[\w:.]+)' to ONNX opset version (?P<opset>\d+) is not"),
        "nothing translates {name} for opset {opset}: the TorchScript exporter has no translation of its own, and none "
        'is registered that takes this call; register one before the export: exporters.register_translation("{name}", '
        "op), or export with another opset_version".format,
    ),
    (
        re.compile(r"No (schema|Op) registered for '?(?P<name>[\w.:]*\w)"),
        "onnx has no schema for {name}; import the module that declares the op, and call "
        "pyops.register_schemas()".format,
    ),
)
