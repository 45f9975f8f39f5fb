"""Checks of an op in a session, by each of the engines, against the plain call."""

from __future__ import annotations

from ..errors import CompileError
from . import variations
from .case import Case, NotRun, Variation, quiet
from .engines import Engine, make_session, why_not
from .sample import Sample


def engine_native(case: Case) -> str:
    """In sessions of the native engine, the op gives what the plain call gives."""
    return _agrees(case, "native")


def engine_extensions(case: Case) -> str:
    """In sessions of the extensions engine, the op gives what the plain call gives."""
    return _agrees(case, "extensions")


def engine_reference(case: Case) -> str:
    """In ONNX's ReferenceEvaluator, the op gives what the plain call gives."""
    return _agrees(case, "reference")


def _agrees(case: Case, engine: Engine) -> str:
    problem = why_not(engine, case)
    if problem is not None:
        raise NotRun(problem)
    # What the kernel returns, which is not what was expected of it where that is wrong.
    sample = Sample(case.op, *case.arrays, **case.sample.attributes).returns(*case.outputs)
    count = 0
    for dynamic in (False, True):
        shapes = "unknown" if dynamic else "known"
        with quiet():
            session = make_session(sample.model(dynamic), engine)
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
