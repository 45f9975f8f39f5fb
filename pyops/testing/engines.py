"""Sessions in which one of the engines runs the ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import onnx

Engine = Literal["native", "extensions", "reference"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def make_session(model: onnx.ModelProto, engine: Engine = "native", options: Any = None) -> Any:
    """A `pyops.InferenceSession` that hosts the ops by an engine; ONNX's ReferenceEvaluator for ``reference``."""
    if engine == "reference":
        from onnx.reference import ReferenceEvaluator

        from ..engines.reference import reference_ops

        return ReferenceEvaluator(model, new_ops=reference_ops(model))
    from ..session import InferenceSession

    return InferenceSession(model, options, engine=engine)
