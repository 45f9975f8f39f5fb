"""Checks that a callable can be an operator's kernel or shape function."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable
from typing import Any

from ..errors import DeclarationError
from .signature import Signature


def check_function(function: Any, op_type: str) -> None:
    """Raise if `function` is a kind of callable that cannot be an operator's kernel.

    Raises
    ------
    DeclarationError
        It is not a plain function with type hints, but a class, a coroutine or generator function, a built-in, ...
    """
    name = getattr(function, "__qualname__", None)
    problem = None
    if not callable(function):
        problem = f"{function!r} is not a function", "put @onnx_op on a function, under @staticmethod in a class"
    elif isinstance(function, type):
        problem = f"{name} is a class", "put @onnx_op on a function"
    elif name is None or not isinstance(getattr(function, "__annotations__", None), dict):
        problem = _without_hints(function)
    elif inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        problem = f"{name} is an async function, and a kernel is called once and returns", "write def"
    elif inspect.isgeneratorfunction(function):
        problem = f"{name} yields, and a kernel is called once and returns", "return what it computes"
    if problem:
        raise DeclarationError(f"{op_type}: {problem[0]}; {problem[1]}")


def _without_hints(function: Any) -> tuple[str, str]:
    call = f"{getattr(function, '__name__', 'the_object')}(x)"
    spelled = repr(function)
    if isinstance(function, functools.partial):
        name = getattr(function.func, "__name__", "the_function")
        keywords = [f"{key}={reprlib.repr(value)}" for key, value in function.keywords.items()]
        call = f"{name}({', '.join([*map(reprlib.repr, function.args), 'x', *keywords])})"
        spelled = f"functools.partial of {name}"
    elif not hasattr(function, "__name__"):
        spelled = f"an object of class {type(function).__qualname__}"
    return (
        f"{spelled} has no signature with hints",
        f"write a def with hints that calls it: def op(x: NDArray[np.float32]) -> NDArray[np.float32]: return {call}",
    )


def check_parameters(function: Callable[..., Any], signature: Signature, takes_out: bool) -> None:
    """Check that a second kernel or a shape function can be called like the declared function.

    Parameters
    ----------
    takes_out : bool
        Whether it is also called with the keyword `out`.

    Raises
    ------
    DeclarationError
        Its parameters do not accept the declared inputs and attributes, or `out`.
    """
    names = [attribute.name for attribute in signature.attributes] + ["out"] * takes_out
    required = sum(not item.optional and not item.variadic for item in signature.inputs)
    try:
        bind = inspect.signature(function).bind
        for count in (required, len(signature.inputs) + signature.is_variadic):
            bind(*[None] * count, **dict.fromkeys(names))
    except (TypeError, ValueError) as error:
        name = getattr(function, "__qualname__", repr(function))
        raise DeclarationError(
            f"{signature.qualified_name}: {name} cannot be called like the declared function ({error}); give it the "
            f"same parameters, hints may be left out: {signature}{', and out=None' if takes_out else ''}"
        ) from None
