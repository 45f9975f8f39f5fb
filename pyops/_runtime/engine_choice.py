"""Which engine hosts the ops."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from typing import Literal, get_args

import onnxruntime

from .._schema.signature import Signature
from ..errors import EngineError
from .calls.type_choices import choices
from .extensions.registry import obstacles
from .native.session_options import session_options_pointer

Engine = Literal["auto", "native", "extensions"]
ENGINES = get_args(Engine)


def choose(engine: Engine) -> Literal["native", "extensions"]:
    """``"native"`` or ``"extensions"``; for ``"auto"`` the former wherever it works.

    Raises
    ------
    EngineError
        There is no such engine, or native is asked for and does not work here.
    """
    if engine not in ENGINES:
        raise EngineError(f"engine is {engine!r}; expected one of {', '.join(map(repr, ENGINES))}")
    problem = None if engine == "extensions" else _native_problem()
    if problem is None:
        return "native" if engine == "auto" else engine
    if engine == "native":
        raise EngineError(problem)
    _tell(problem)
    return "extensions"


def engine_of(signature: Signature) -> str | None:
    """The engine that hosts an op where nobody asks for one; None where it cannot."""
    if _native_problem() is None:
        return "native" if choices(signature) else None
    if importlib.util.find_spec("onnxruntime_extensions") is None:
        return None
    return None if obstacles(signature) else "extensions"


@functools.cache
def _native_problem() -> str | None:
    try:
        session_options_pointer(onnxruntime.SessionOptions())
    except EngineError as error:
        return str(error)
    return None


@functools.cache
def _tell(problem: str) -> None:
    warnings.warn(
        f"ops are hosted by the extensions engine, which carries fewer of them: the native one does not work here "
        f"({problem})",
        stacklevel=4,
    )
