"""The registered translations of torch operators to ONNX nodes, which must mean the same in the model's opset."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import onnx_ir

from pyops import Op
from pyops._onnx.operator_versions import means_the_same
from pyops.errors import add_note

from .._torch.private.onnx_exporter import lowest_opset, recording
from .._torch.private.operators import (
    OpOverload,
    describe,
    find_overload,
    is_mutable,
    overloads,
    qualified_name,
    schema_arguments,
)
from ..errors import ExportError, NoTranslationError
from .op_translation import called_as_nodes, op_translation

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Registration:
    """The registered translation of an operator."""

    translation: Callable[..., Any]  # called with the arguments of the call in the exported graph
    source: Any  # the function or Op that the user registered


# Keyed by name, because registering a torch operator again creates another OpOverload object.
_translations: dict[str, Registration] = {}


@overload
def register_translation(torch_op: str, function: None = None) -> Callable[[F], F]: ...
@overload
def register_translation(torch_op: str, function: F) -> F: ...
def register_translation(torch_op: str, function: Any = None) -> Any:
    """Register how `export` translates a torch operator to ONNX; without a function, return a decorator.

    Parameters
    ----------
    torch_op : str
        ``"ns::name.overload"`` for one overload, ``"ns::name"`` for every overload whose arguments the function
        takes; ``"::name"`` is ``"aten::name"``. A later registration replaces an earlier one.
    function : callable or Op, optional
        - A Python function. It is called with the arguments of the exported call: graph values for
          tensors, constants for the rest; arguments that equal torch's defaults are omitted. It returns one
          graph value per output, from nodes emitted by `opset`, or NotImplemented to use torch's own
          translation for this call.
        - An ``@onnxscript.script()`` function.
        - An `Op`. torch's tensors become its inputs in order; other arguments become its attributes of the
          same names.

    Returns
    -------
    callable or Op
        `function`, unchanged.

    Raises
    ------
    ExportError
        torch has no such operator, the operator writes to its arguments, or the function does not take
        the arguments that torch passes.

    Examples
    --------
    >>> import exporters
    >>> @exporters.register_translation("aten::gelu")
    ... def gelu(x, *, approximate="none"):
    ...     return exporters.opset("com.microsoft").Gelu(x)
    """
    functional_overloads(torch_op)
    if function is None:
        return lambda decorated: register_translation(torch_op, decorated)
    _translations.update(registrations(torch_op, function))
    return function


def functional_overloads(torch_op: str) -> list[OpOverload]:
    """Return the overloads of a torch operator that do not write to their arguments.

    An exported graph has no others.

    Raises
    ------
    ExportError
        torch has no such operator, or every overload writes to its arguments.
    """
    functional = [target for target in overloads(torch_op) if not is_mutable(target)]
    if not functional:
        raise ExportError(
            f"{torch_op} writes to its arguments, and an exported graph has no such operator; "
            "translate the operator that returns the result instead"
        )
    return functional


def registrations(torch_op: str, function: Any) -> dict[str, Registration]:
    """Return a Registration for each overload that a function or an Op can translate.

    Raises
    ------
    ExportError
        It can translate none of them, or `functional_overloads` raises.
    """
    found: dict[str, Registration] = {}
    problems = []
    for target in functional_overloads(torch_op):
        try:
            found[qualified_name(target)] = Registration(_translation(target, function), function)
        except ExportError as error:
            problems.append(str(error))
    if not found:
        raise ExportError("\n".join(problems))
    return found


def register(torch_op: str, translation: Callable[..., Any], source: Any = None) -> None:
    """Register the translation of one overload without checks; `source` is the Op if it emits one node of an Op."""
    _translations[torch_op] = Registration(translation, source or translation)


def registered() -> dict[OpOverload, Callable[..., Any]]:
    """Return the registered translations by overload; one may return NotImplemented to use torch's own."""
    found = {find_overload(name): registration.translation for name, registration in _translations.items()}
    return {target: translation for target, translation in found.items() if target is not None}


def registration_of(target: OpOverload) -> Registration | None:
    """Return what is registered for an operator, or None."""
    return _translations.get(qualified_name(target))


_RAISED = "__raised_by_translation__"


def raised_by_translation(error: BaseException) -> bool:
    """Return whether a registered translation raised an exception."""
    return hasattr(error, _RAISED)


def no_translation_error(target: OpOverload) -> ExportError:
    """Return the error for a translation that returns NotImplemented although torch has no translation."""
    return NoTranslationError(
        f"the translation that is registered for {qualified_name(target)} returns NotImplemented for this call, and "
        "torch has no translation of its own; let it emit nodes, or raise an error that says what it does not support"
    )


def _translation(target: OpOverload, function: Any) -> Callable[..., Any]:
    if isinstance(function, Op):
        return op_translation(target, function)
    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):  # not callable, or a built-in without a signature
        raise ExportError(
            f"{qualified_name(target)}: a translation is a Python function, an @onnxscript.script function or an Op, "
            f"not {function!r}"
        ) from None
    _check_parameters(target, function, parameters)

    # Bound here because onnxscript silently drops arguments that its function does not take.
    def translation(*args: Any, **kwargs: Any) -> Any:
        try:
            parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise ExportError(
                f"{qualified_name(target)}: the model passes arguments that {_format(function, parameters)} does not "
                f"take ({error}); give it the parameters of {describe(target)}"
            ) from None
        with called_as_nodes():
            try:
                with checking_older_nodes(f"the translation of {qualified_name(target)}"):
                    return function(*args, **kwargs)
            except Exception as error:  # marked for raised_by_translation
                setattr(error, _RAISED, True)
                add_note(error, f"raised by the translation of {qualified_name(target)}")
                raise

    return translation


def _check_parameters(target: OpOverload, function: Any, parameters: inspect.Signature) -> None:
    """Check that the function accepts the arguments that torch always passes, and has torch's defaults."""
    arguments = schema_arguments(target)
    required = [item for item in arguments if not item.has_default]
    positional = [item for item in required if not item.keyword_only]
    problem = ""
    try:
        parameters.bind(*positional, **{item.name: None for item in required if item.keyword_only})
    except TypeError as error:
        problem = f"{error}; torch leaves out arguments that equal their defaults"
    for index, item in enumerate(arguments):
        name = item.name if item.keyword_only else next(iter(list(parameters.parameters)[index : index + 1]), "")
        default = parameters.parameters[name].default if name in parameters.parameters else inspect.Parameter.empty
        same = default == item.default or (isinstance(default, tuple) and list(default) == item.default)
        # None lets a function detect an omitted argument; any other default would give wrong values.
        if item.has_default and default not in (inspect.Parameter.empty, None) and not same:
            problem = f"{name} defaults to {default!r}, but torch leaves it out where it is {item.default!r}"
    if problem:
        raise ExportError(
            f"{_format(function, parameters)} cannot translate {describe(target)}: {problem}; "
            "give it torch's parameters and defaults"
        )


def _format(function: Any, parameters: inspect.Signature) -> str:
    return f"{getattr(function, '__name__', type(function).__name__)}{parameters}"


def check_opset(where: str, nodes: Iterable[onnx_ir.Node], written: int | None, opset_version: int) -> None:
    """Raise ExportError if a node of one of ONNX's own operators means something else in the model's opset.

    Parameters
    ----------
    written : int, optional
        The opset version that the nodes were written for; by default each node's own.
    """
    for node in nodes:
        version = written or node.version
        if node.domain or version is None or means_the_same(node.op_type, node.attributes, version, opset_version):
            continue
        raise ExportError(
            f"{where} uses {node.op_type} of opset {version}, which differs from that of the model's opset "
            f"{opset_version}; export with opset_version={version} (below 18 with dynamo=False), or write it with "
            f"onnxscript.opset{opset_version}"
        )


@contextmanager
def checking_older_nodes(where: str) -> Iterator[None]:
    """Context manager: check the nodes emitted in the block that are too old for torch's exporter to convert.

    Raises
    ------
    ExportError
        The operator of such a node has changed since the node's version.
    """
    nodes, opset_version = recording()
    before = len(nodes)
    yield
    lowest = min(lowest_opset(), opset_version)
    named = [(node, node.version or lowest) for node in nodes[before:] if not node.domain]
    older = [(node, version) for node, version in named if version < lowest]
    changed = [node for node, version in older if not means_the_same(node.op_type, node.attributes, version, lowest)]
    check_opset(where, changed, None, opset_version)
