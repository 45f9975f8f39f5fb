"""Sessions for each engine, and the reasons why an engine cannot run a case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from .._schema.dtypes import dtype_name
from ..errors import EngineError
from ._case import NO_ONNXRUNTIME, Case, is_installed

if TYPE_CHECKING:
    import onnx

Engine = Literal["native", "extensions", "reference"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def make_session(model: onnx.ModelProto, engine: Engine = "native") -> Any:
    """Create a `pyops.InferenceSession` with an engine; for ``reference``, ONNX's ReferenceEvaluator."""
    if engine == "reference":
        from onnx.reference import ReferenceEvaluator

        from .._runtime.reference import reference_ops

        return ReferenceEvaluator(model, new_ops=reference_ops(model))
    from .._runtime.session import InferenceSession

    return InferenceSession(model, engine=engine)


def why_not(engine: Engine, case: Case) -> str | None:
    """Return the reason why an engine cannot run a case; None if it can."""
    if engine == "reference":
        return None
    if not is_installed("onnxruntime"):
        return NO_ONNXRUNTIME
    used = {dtype_name(array.dtype) for array in (*case.arrays, *case.outputs) if array is not None}
    return _why_not_native(case, used) if engine == "native" else _why_not_extensions(case, used)


def _why_not_native(case: Case, used: set[str]) -> str | None:
    from .._runtime import engine_choice
    from .._runtime.native.hosted_op import unsupported_types

    try:
        engine_choice.choose("native")
    except EngineError as error:
        return str(error)
    lacking = used.intersection(unsupported_types(case.signature))
    return f"ONNX Runtime's custom operators cannot have {', '.join(sorted(lacking))}" if lacking else None


def _why_not_extensions(case: Case, used: set[str]) -> str | None:
    from .._runtime.extensions.registry import obstacles, unsupported_types

    unsupported = used.intersection(unsupported_types(case.signature))
    lacking = [*obstacles(case.signature), *sorted(unsupported)]
    if lacking:
        return f"onnxruntime-extensions cannot carry {', '.join(lacking)}"
    if not is_installed("onnxruntime_extensions"):
        return "onnxruntime-extensions is not installed: pip install onnxruntime-extensions"
    return None
