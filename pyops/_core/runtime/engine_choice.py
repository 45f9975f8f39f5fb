"""Selection of the engine that hosts the ops."""

from __future__ import annotations

import functools
import importlib.util
from typing import Literal, get_args

import onnxruntime

from ...errors import EngineError, warn
from ..satellites import satellite
from ..schema.signature import Signature
from .native.op_registration import session_options_pointer
from .native.ort_custom_op import choices

Engine = Literal["auto", "native", "extensions"]
ENGINES = get_args(Engine)


def choose(engine: Engine) -> Literal["native", "extensions"]:
    """Resolve `engine` to ``"native"`` or ``"extensions"``; ``"auto"`` prefers native.

    Raises
    ------
    EngineError
        `engine` is unknown, or is ``"native"`` and that engine does not work on this machine.
    """
    if engine not in ENGINES:
        raise EngineError(f"engine is {engine!r}; expected one of {', '.join(map(repr, ENGINES))}")
    problem = None if engine == "extensions" else _native_problem()
    if problem is None:
        return "native" if engine == "auto" else engine
    if engine == "native":
        raise EngineError(problem)
    _warn_fallback(problem)
    return "extensions"


def engine_of(signature: Signature) -> str | None:
    """Return the engine that ``"auto"`` would host this op with, or None if no engine supports it."""
    if _native_problem() is None:
        return "native" if choices(signature) else None
    if importlib.util.find_spec("onnxruntime_extensions") is None:
        return None
    return None if satellite("extensions").reason_against(signature) else "extensions"


@functools.cache
def _native_problem() -> str | None:
    try:
        session_options_pointer(onnxruntime.SessionOptions())
    except EngineError as error:
        return str(error)
    return None


@functools.cache
def _warn_fallback(problem: str) -> None:
    warn(
        f"falling back to the extensions engine, which supports fewer ops: the native engine does not work here "
        f"({problem})",
    )
