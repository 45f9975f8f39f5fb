"""Explanations of error messages of torch and onnxscript, with the fix."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TypeGuard

from pyops.errors import PyopsError

from .._torch_private.operators import OpOverload, find_overload, qualified_name
from ..errors import ExportError, NoTranslationError, causes
from .nodes import symbolic_message
from .translations import raised_by_translation


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


def _is_of_translation(error: BaseException) -> TypeGuard[Exception]:
    return isinstance(error, Exception) and raised_by_translation(error)


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
    return next((cause for cause in causes(error) if _is_of_translation(cause)), error)


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
