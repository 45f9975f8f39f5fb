"""Checks that compare sessions of each engine, and the CUDA kernel, with the plain call."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal, get_args

from .._core import CopyingKernel, cupy_with_gpu
from .._support.element_types import STRING, dtype_name, ort_code
from ..errors import CompileError, DeviceError, MissingDependencyError, OutputError
from . import _variations
from ._case import IN_SESSIONS, Case, NotRun, Variation, check_after, format_error, quiet, where_available
from ._decomposition_checks import Refusal, compare
from ._sample import Sample

if TYPE_CHECKING:
    import onnx

Engine = Literal["native", "extensions", "reference"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

SAMPLES = 100
"""The number of samples of a strategy."""


def make_session(model: onnx.ModelProto, engine: Engine = "native") -> Any:
    """Create a `pyops.InferenceSession` with an engine; for ``reference``, ONNX's ReferenceEvaluator."""
    if engine == "reference":
        from onnx.reference import ReferenceEvaluator

        from .. import reference_ops

        return ReferenceEvaluator(model, new_ops=reference_ops(model))
    from .. import InferenceSession

    return InferenceSession(model, engine=engine)


@check_after(*IN_SESSIONS, "empty", "scalar")
def engine_native(case: Case) -> str:
    """Check that sessions of the native engine return what the plain call returns."""
    return _agrees(case, "native")


@check_after(*IN_SESSIONS, "empty", "scalar")
def engine_extensions(case: Case) -> str:
    """Check that sessions of the extensions engine return what the plain call returns."""
    return _agrees(case, "extensions")


@check_after(*IN_SESSIONS, "empty", "scalar")
def engine_reference(case: Case) -> str:
    """Check that ONNX's ReferenceEvaluator returns what the plain call returns."""
    return _agrees(case, "reference")


@check_after("repeatable")
def cuda(case: Case) -> str:
    """Check that the CUDA kernel returns what the CPU kernel returns, in a plain call and in a CUDA session."""
    op, signature = case.op, case.signature
    if "cuda" not in op.kernels:
        raise NotRun("no CUDA kernel is registered")
    if "cpu" not in op.device_types:
        raise NotRun("there is no CPU kernel to compare the CUDA kernel with")
    kernel = CopyingKernel(signature, op.kernels["cuda"], op.host_inputs)
    with where_available(), quiet():
        cupy_with_gpu("the CUDA kernel")
        outputs = case.call(wrap=lambda _: kernel)
    case.compare(outputs, case.outputs, "the CUDA kernel gives other outputs")
    try:
        from .. import InferenceSession

        with quiet():
            session = InferenceSession(case.sample.model(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    except (DeviceError, MissingDependencyError) as error:
        return f"in a plain call, not in a session: {error}"
    with quiet():
        results = session.run(None, case.sample.feed)
    case.compare(results, case.outputs, "in a CUDA session, the CUDA kernel gives other outputs")
    return "in a plain call, and in a CUDA session"


@check_after("dtypes", "engine_native")
def generated(case: Case) -> str:
    """Check that sessions return what the plain call returns for generated inputs and attributes."""
    if case.generate == 0:
        raise NotRun("no generated inputs are requested; pass generate=100 for a hundred samples")
    from . import strategies

    counted = isinstance(case.generate, int)
    strategy = strategies.registered(case.op) if counted else case.generate
    failing: list[Sample] = []
    refusals: list[Exception | None] = []

    def validate(sample: Sample) -> None:
        failing[:] = [sample]
        refusals.append(_refusal(Case(sample, rtol=case.rtol, atol=case.atol)))

    try:
        strategies.run(case.op, strategy, case.generate if counted else SAMPLES, validate)
    except Exception as error:  # whatever the kernel or a comparison raised
        raise AssertionError(f"{f'for {failing[0]}: ' if failing else ''}{format_error(error)}") from error
    refused = [refusal for refusal in refusals if refusal is not None]
    if len(refused) == len(refusals):
        raise NotRun(
            f"the kernel refuses all {len(refused)} generated samples, the last one with {format_error(refused[-1])}; "
            f"pass a strategy: check(..., generate=pyops.testing.strategies.samples({case.op.__name__}, shapes=...))"
        )
    return f"{len(refusals)} samples, of which the kernel refuses {len(refused)}"


def _refusal(case: Case) -> Exception | None:
    """Return the exception with which the kernel rejects a sample; None if a session agrees with the plain call."""
    try:
        outputs = case.outputs
    except OutputError:
        raise
    except Exception as error:  # a kernel may reject its inputs with any exception
        return error
    case.validate_shapes(Variation("generated inputs", case.arrays, outputs))
    with contextlib.suppress(Refusal, NotRun):
        compare(case, "for generated inputs", case.arrays, case.attributes, outputs)
    if outputs:
        model = case.sample.with_expected(*outputs).model()
        try:
            session = _session(case, model, "native")
        except NotRun:
            session = _session(case, model, "reference")
        with quiet():
            actual = session.run(None, case.sample.feed)
        case.compare(actual, outputs, "in a session")
    return None


def _agrees(case: Case, engine: Engine) -> str:
    # Compare with what the kernel returns, even if the user expects something else: that is another check.
    sample = Sample(case.op, *case.arrays, **case.sample.attributes).with_expected(*case.outputs)
    count = 0
    for dynamic in (False, True):
        shapes = "unknown" if dynamic else "known"
        session = _session(case, sample.model(dynamic), engine)
        # Twice: a second call must not see anything that the session kept from the first.
        varied = [Variation("with the sample's inputs", case.arrays, case.outputs)] * 2
        if dynamic:
            varied += case.other_sizes
            varied += [case.vary(what, arrays) for what, arrays in _variations.empty(case.arrays)]
            varied.append(case.vary("without dimensions", _variations.scalar(case.arrays)))
        for variation in varied:
            if variation.outputs is None or len(variation.outputs) != len(case.outputs):
                continue
            feed = Sample(case.op, *variation.arrays, **case.sample.attributes).feed
            try:
                with quiet():
                    actual = session.run(None, feed)
            except CompileError:
                # Sessions pass output buffers, with which some variations do not compile.
                if variation is varied[0]:
                    raise
                continue
            case.compare(actual, variation.outputs, f"{variation}, in a model where shapes are {shapes}")
            count += 1
    return f"{count} runs"


def _session(case: Case, model: onnx.ModelProto, engine: Engine) -> Any:
    """Create a session of the case's op; where the engine does not support the op here, the check is not run."""
    with where_available(), quiet():
        if engine != "reference":
            from .._extensions import is_supported

            supports = ort_code if engine == "native" else is_supported
            used = {array.dtype for array in (*case.arrays, *case.outputs) if array is not None}
            lacking = sorted(dtype_name(dtype) for dtype in used if not supports(dtype))
            if lacking:
                raise NotRun(f"the {engine} engine does not support {', '.join(lacking)}")
            foreign = sorted(dtype_name(dtype) for dtype in used if dtype.type.__module__ == "ml_dtypes")
            if foreign and any(array is not None and array.dtype == STRING for array in case.arrays):
                raise NotRun(f"ONNX Runtime's bindings take no string inputs in a model with {foreign[0]}")
        return make_session(model, engine)
