"""Which ONNX nodes a torch operator becomes: the translations that are registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import onnxscript

from pyops._ops.op import Op

from .._torch.operators import find_overload, overloads
from .._torch_private.exporter import own_translation
from .._torch_private.operators import OpOverload, is_mutable, qualified_name, schema_arguments, spell
from ..errors import ExportError
from . import functions
from .op_translation import check_returned, op_translation
from .opset_check import older_nodes_checked

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Registration:
    """How an operator is translated."""

    translation: Callable[..., Any]  # takes the arguments that the exported graph has
    source: Any  # the function or Op that was given for it


# By the overload's name: registering a torch operator again makes another OpOverload object of it.
_translations: dict[str, Registration] = {}


@overload
def register_translation(torch_op: str, function: None = None) -> Callable[[F], F]: ...
@overload
def register_translation(torch_op: str, function: F) -> F: ...
def register_translation(torch_op: str, function: Any = None) -> Any:
    """Register how `export` translates a torch operator to ONNX; a decorator where no function is given.

    Parameters
    ----------
    torch_op : str
        ``"ns::name.overload"`` for one overload, ``"ns::name"`` for every overload that the function
        can take; ``"::name"`` is ``"aten::name"``. A later registration replaces an earlier one.
    function : callable or Op, optional
        - A Python function. It gets the arguments that the exported graph has: graph values for
          tensors, constants for the rest, none that equals torch's default. It returns what the
          nodes return that it emits through `opset`, one value per output. NotImplemented leaves
          this call to torch's own translation.
        - An ``@onnxscript.script()`` function.
        - An `Op`: its inputs are torch's tensors in order, its attributes torch's other arguments
          of the same names.

    Returns
    -------
    callable or Op
        The function as given.

    Raises
    ------
    ExportError
        Torch has no such operator, it writes to its arguments, or the function cannot take what
        torch passes.

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
    """The overloads of a torch operator that an exported graph may have.

    Raises
    ------
    ExportError
        Torch has no such operator, or it writes to its arguments.
    """
    functional = [target for target in overloads(torch_op) if not is_mutable(target)]
    if not functional:
        raise ExportError(
            f"{torch_op} writes to its arguments, and an exported graph has no such operator left; "
            "translate the one that returns its result"
        )
    return functional


def registrations(torch_op: str, function: Any) -> dict[str, Registration]:
    """What a function or an Op translates of a torch operator, by overload; raises as `register_translation`."""
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
    """Enter the translation of one overload, unchecked; the source is the Op that it emits, if that is all."""
    _translations[torch_op] = Registration(translation, source or translation)


def registered() -> dict[OpOverload, Callable[..., Any]]:
    """Every registered translation; one that returns NotImplemented leaves the call to torch's own."""
    found = {find_overload(name): registration.translation for name, registration in _translations.items()}
    return {target: translation for target, translation in found.items() if target is not None}


def registered_source(target: OpOverload) -> Any:
    """The function or Op that is registered for an operator; None if there is none."""
    registration = _translations.get(qualified_name(target))
    return registration.source if registration else None


class NoTranslationError(ExportError):
    """A registered translation leaves a call to torch's own, and there is none."""


_RAISED = "__raised_by_translation__"


def raised_by_translation(error: BaseException) -> bool:
    """Whether a function that is registered raised an exception."""
    return hasattr(error, _RAISED)


def refused(target: OpOverload) -> ExportError:
    """What to raise where a translation leaves a call to torch's own, and there is none."""
    return NoTranslationError(
        f"the translation that is registered for {qualified_name(target)} returns NotImplemented for this call, and "
        "torch has none of its own; let it emit the nodes, or raise an error that says what is not possible"
    )


def or_torchs_own(target: OpOverload, translation: Callable[..., Any]) -> Callable[..., Any]:
    """The translation, or torch's own where it leaves a call to that."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        result = translation(*args, **kwargs)
        if result is not NotImplemented:
            check_returned(target, result)
            return result
        own = own_translation(target)
        if own is None:
            raise refused(target)
        return own(*args, **kwargs)

    return chosen


def _translation(target: OpOverload, function: Any) -> Callable[..., Any]:
    if isinstance(function, Op):
        return op_translation(target, function)
    try:
        parameters = inspect.signature(function)
    except (TypeError, ValueError):  # it is not callable, or is built in and does not say what it takes
        raise ExportError(
            f"{qualified_name(target)}: a translation is a Python function, an @onnxscript.script function or an Op, "
            f"not {function!r}"
        ) from None
    _check_parameters(target, function, parameters)

    # Bound here because onnxscript drops arguments that its function does not take, without a word.
    def translation(*args: Any, **kwargs: Any) -> Any:
        try:
            parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise ExportError(
                f"{qualified_name(target)}: the model passes what {_spell(function, parameters)} does not take "
                f"({error}); give it the parameters of {spell(target)}"
            ) from None
        if isinstance(function, onnxscript.OnnxFunction):
            functions.check_return_annotation(function)
        with functions.called_as_nodes():
            try:
                with older_nodes_checked(f"the translation of {qualified_name(target)}"):
                    return function(*args, **kwargs)
            except Exception as error:  # marked and raised again
                setattr(error, _RAISED, True)
                raise

    return translation


def _check_parameters(target: OpOverload, function: Any, parameters: inspect.Signature) -> None:
    """Check that the function can be called with the arguments that torch always passes."""
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
        # None is how a function asks whether it was given; any other default would be a wrong number.
        if item.has_default and default not in (inspect.Parameter.empty, None) and not same:
            problem = f"{name} defaults to {default!r} and torch's to {item.default!r}, which torch leaves out"
    if problem:
        raise ExportError(
            f"{_spell(function, parameters)} cannot translate {spell(target)}: {problem}; "
            "give it torch's parameters and defaults"
        )


def _spell(function: Any, parameters: inspect.Signature) -> str:
    return f"{getattr(function, '__name__', type(function).__name__)}{parameters}"
