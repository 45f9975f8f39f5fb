"""Checks of an op in a session, by each of the engines, against the plain call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .. import registry
from ..errors import CompileError
from ..isolation import isolated_declarations
from ..op import Op
from ..types import dtype_name
from . import variations
from .attribute_values import spell_attribute
from .case import NO_ONNXRUNTIME, Case, NotRun, Variation, is_installed, quiet
from .engines import Engine, make_session
from .sample import Sample


def engine_native(case: Case) -> str:
    """In sessions of the native engine, the op gives what the plain call gives."""
    return _agrees(case, "native", why_not_native(case))


def engine_extensions(case: Case) -> str:
    """In sessions of the extensions engine, the op gives what the plain call gives."""
    return _agrees(case, "extensions", _why_not_extensions(case))


def engine_reference(case: Case) -> str:
    """In ONNX's ReferenceEvaluator, the op gives what the plain call gives."""
    return _agrees(case, "reference", None)


def attributes(case: Case) -> str:
    """A node's attributes reach the kernel with the types and values that a plain call has."""
    if not case.signature.attributes:
        raise NotRun("the op has no attributes")
    engines: dict[Engine, str | None] = {
        "native": why_not_native(case),
        "extensions": _why_not_extensions(case),
        "reference": None,
    }
    seen: list[dict[str, Any]] = []

    def spy(*inputs: Any, **given: Any) -> Any:
        seen.append({name: value for name, value in given.items() if name != "out"})
        return tuple(case.outputs) if case.signature.returns_tuple else case.outputs[0]

    wanted = case.attributes
    with isolated_declarations(), quiet():
        op = Op(replace(case.signature, domain="pyops.testing"), spy)
        op.shape_function = case.op.shape_function
        registry.declare(op)
        model = Sample(op, *case.arrays, **case.sample.attributes).model()
        for engine in [engine for engine, problem in engines.items() if problem is None]:
            seen.clear()
            make_session(model, engine).run(None, case.sample.feed)
            for name, value in seen[-1].items():
                if spell_attribute(value) != spell_attribute(wanted[name]):
                    raise AssertionError(
                        f"attribute {name!r} is {value!r} in a session of the {engine} engine; a plain call has "
                        f"{wanted[name]!r}"
                    )
    return ", ".join(engine for engine, problem in engines.items() if problem is None)


def _agrees(case: Case, engine: Engine, problem: str | None) -> str:
    if problem is not None:
        raise NotRun(problem)
    count = 0
    for dynamic in (False, True):
        shapes = "unknown" if dynamic else "known"
        with quiet():
            session = make_session(_sample(case).model(dynamic), engine)
        # Twice: what a session keeps from a call must not show in the next.
        varied = [Variation("with the sample's inputs", case.arrays, case.outputs)] * 2
        if dynamic:
            varied += case.other_sizes
            varied += [case.vary(what, arrays) for what, arrays in variations.empty(case.arrays)]
            varied.append(case.vary("without dimensions", variations.scalar(case.arrays)))
        for variation in varied:
            if variation.outputs is None or len(variation.outputs) != len(case.outputs):
                continue
            feed = {f"x{index}": array for index, array in enumerate(variation.arrays) if array is not None}
            try:
                with quiet():
                    actual = session.run(None, feed)
            except CompileError:
                # With buffers, as a session has them, less may compile.
                if variation is varied[0]:
                    raise
                continue
            case.compare(actual, variation.outputs, f"{variation}, in a model where shapes are {shapes}")
            count += 1
    return f"{count} runs"


def _sample(case: Case) -> Sample:
    """The sample with what the kernel returns for it, which is not what was expected of it where that is wrong."""
    return Sample(case.op, *case.arrays, **case.sample.attributes).returns(*case.outputs)


def why_not_native(case: Case) -> str | None:
    """Why the native engine cannot run a case; None where it can."""
    if not is_installed("onnxruntime"):
        return NO_ONNXRUNTIME
    from ..engines import choice
    from ..engines.hosted_op import unsupported_types
    from ..errors import EngineError

    try:
        choice.choose("native")
    except EngineError as error:
        return str(error)
    lacking = set(unsupported_types(case.signature)) & _used_types(case)
    return f"ONNX Runtime's custom operators cannot have {', '.join(sorted(lacking))}" if lacking else None


def _why_not_extensions(case: Case) -> str | None:
    if not is_installed("onnxruntime"):
        return NO_ONNXRUNTIME
    from ..engines import extensions_carried

    lacking = [
        *extensions_carried.obstacles(case.signature),
        *sorted(set(extensions_carried.unsupported_types(case.signature)) & _used_types(case)),
    ]
    if lacking:
        return f"onnxruntime-extensions cannot carry {', '.join(lacking)}"
    if not is_installed("onnxruntime_extensions"):
        return "onnxruntime-extensions is not installed: pip install onnxruntime-extensions"
    return None


def _used_types(case: Case) -> set[str]:
    return {dtype_name(array.dtype) for array in (*case.arrays, *case.outputs) if array is not None}
