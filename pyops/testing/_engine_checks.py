"""Checks that compare sessions of each engine, and the CUDA kernel, with the plain call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from .._ops.cuda_kernel import on_host, returning_cupy
from .._schema import devices, validation
from .._schema.dtypes import dtype_name
from ..errors import CompileError, DeviceError, MissingDependencyError
from . import _variations
from ._case import IN_SESSIONS, Case, NotRun, Variation, check_after, quiet, where_available
from ._sample import Sample

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
    with where_available():
        cupy = devices.cupy_with_gpu("the CUDA kernel")
    stay = on_host(signature, len(case.arrays), op.host_inputs)
    arrays = [x if x is None or stays else devices.asarray(cupy, x) for x, stays in zip(case.arrays, stay, strict=True)]
    outputs = validation.call(signature, returning_cupy(signature, op.kernels["cuda"]), arrays, case.attributes)
    case.compare(list(map(devices.asnumpy, outputs)), case.outputs, "the CUDA kernel gives other outputs")
    try:
        from .._runtime.session import InferenceSession

        with quiet():
            session = InferenceSession(case.sample.model(), providers=[devices.CUDA_PROVIDER, "CPUExecutionProvider"])
    except (DeviceError, MissingDependencyError) as error:
        return f"called; in no session: {error}"
    with quiet():
        results = session.run(None, case.sample.feed)
    case.compare(results, case.outputs, "in a CUDA session it gives other outputs")
    return "called, and in a CUDA session"


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


def _session(case: Case, model: onnx.ModelProto, engine: Engine) -> Any:
    """Create a session of the case's op; where the engine does not support the op here, the check is not run."""
    with where_available(), quiet():
        if engine != "reference":
            from .._runtime.extensions import registry
            from .._runtime.native import hosted_op

            used = {dtype_name(array.dtype) for array in (*case.arrays, *case.outputs) if array is not None}
            module = hosted_op if engine == "native" else registry
            lacking = used.intersection(module.unsupported_types(case.signature))
            if lacking:
                raise NotRun(f"the {engine} engine does not support {', '.join(sorted(lacking))}")
        return make_session(model, engine)
