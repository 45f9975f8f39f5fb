"""Checks that compare sessions of each engine, and the CUDA kernel, with the plain call."""

from __future__ import annotations

from .._ops.cuda_kernel import on_host, returning_cupy
from .._schema import devices, validation
from ..errors import CompileError, DeviceError, MissingDependencyError
from . import _variations
from ._case import Case, NotRun, Variation, is_installed, quiet
from ._engines import Engine, make_session, why_not
from ._sample import Sample


def engine_native(case: Case) -> str:
    """Check that sessions of the native engine return what the plain call returns."""
    return _agrees(case, "native")


def engine_extensions(case: Case) -> str:
    """Check that sessions of the extensions engine return what the plain call returns."""
    return _agrees(case, "extensions")


def engine_reference(case: Case) -> str:
    """Check that ONNX's ReferenceEvaluator returns what the plain call returns."""
    return _agrees(case, "reference")


def _agrees(case: Case, engine: Engine) -> str:
    problem = why_not(engine, case)
    if problem is not None:
        raise NotRun(problem)
    # Compare with what the kernel returns, even if the user expects something else: that is another check.
    sample = Sample(case.op, *case.arrays, **case.sample.attributes).with_expected(*case.outputs)
    count = 0
    for dynamic in (False, True):
        shapes = "unknown" if dynamic else "known"
        with quiet():
            session = make_session(sample.model(dynamic), engine)
        # Twice: a second call must not see anything that the session kept from the first.
        varied = [Variation("with the sample's inputs", case.arrays, case.outputs)] * 2
        if dynamic:
            varied += case.other_sizes
            varied += [case.vary(what, arrays) for what, arrays in _variations.empty(case.arrays)]
            varied.append(case.vary("without dimensions", _variations.scalar(case.arrays)))
        for variation in varied:
            if variation.outputs is None or len(variation.outputs) != len(case.outputs):
                continue
            feed = {f"x{index}": array for index, array in enumerate(variation.arrays) if array is not None}
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


def cuda(case: Case) -> str:
    """Check that the CUDA kernel returns what the CPU kernel returns, in a plain call and in a CUDA session."""
    op, signature = case.op, case.signature
    if "cuda" not in op.kernels:
        raise NotRun("no CUDA kernel is registered")
    if "cpu" not in op.device_types:
        raise NotRun("there is no CPU kernel to hold the CUDA kernel against")
    try:
        cupy = devices.cupy_with_gpu("the CUDA kernel")
    except (MissingDependencyError, DeviceError) as error:
        raise NotRun(str(error)) from None
    stay = on_host(signature, len(case.arrays), op.host_inputs)
    arrays = [x if x is None or stays else devices.asarray(cupy, x) for x, stays in zip(case.arrays, stay, strict=True)]
    outputs = validation.call(signature, returning_cupy(signature, op.kernels["cuda"]), arrays, case.attributes)
    case.compare(list(map(devices.asnumpy, outputs)), case.outputs, "the CUDA kernel gives other outputs")
    problem = _why_no_session()
    if problem:
        return f"called; in no session: {problem}"
    from .._runtime.session import InferenceSession

    with quiet():
        session = InferenceSession(case.sample.model(), providers=[devices.CUDA_PROVIDER, "CPUExecutionProvider"])
        results = session.run(None, case.sample.feed)
    case.compare(results, case.outputs, "in a CUDA session it gives other outputs")
    return "called, and in a CUDA session"


def _why_no_session() -> str | None:
    if not is_installed("onnxruntime"):
        return "ONNX Runtime is not installed"
    import onnxruntime

    available = devices.CUDA_PROVIDER in onnxruntime.get_available_providers()
    return None if available else f"this onnxruntime has no {devices.CUDA_PROVIDER}"
