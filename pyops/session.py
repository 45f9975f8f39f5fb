"""Sessions that know the declared ops."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .errors import MissingDependencyError

try:
    import onnxruntime
except ImportError as error:
    raise MissingDependencyError(
        'sessions need ONNX Runtime, which is not installed: pip install "onnx-pyops[cpu]", or "onnx-pyops[cuda]" on '
        "a machine with an NVIDIA GPU (not both: they overwrite each other's files)"
    ) from error

from . import adoption, failures, hosting, model, ort_values, plugins, registry
from .engines import native
from .engines.hosted_op import unsupported_types
from .errors import ModelError
from .explanations import explanations

_FATAL = 4
_UNSET = -1


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """An ``onnxruntime.InferenceSession`` in which the declared ops run.

    A kernel's exception reaches the caller as itself, with a note that names the node. Functions
    declared with onnxruntime-extensions' own ``onnx_op`` run too.

    Parameters
    ----------
    path_or_bytes : str, os.PathLike, bytes, onnx.ModelProto or torch.onnx.ONNXProgram
        The model.
    sess_options : onnxruntime.SessionOptions, optional
        May hold custom-op libraries of others, and be used for several sessions.
    providers, provider_options, **kwargs
        As for ``onnxruntime.InferenceSession``.

    Raises
    ------
    ModelError
        The model and the declared ops disagree, or ONNX Runtime refuses the model for want of an
        operator; the message lists what is missing.
    PluginError
        An installed plug-in that the model needs is broken.
    MissingDependencyError
        The CUDA execution provider is asked for and not available.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Any = None,
        provider_options: Any = None,
        **kwargs: Any,
    ) -> None:
        source = model.load(path_or_bytes)
        if source.proto is None:
            plugins.import_all()
        plugins.import_for(model.undeclared_domains(source))
        adopted, taken = adoption.adopted_ops(), adoption.taken_domains()
        resolution = model.resolve(source, adopted, taken)
        if resolution.problems:
            raise ModelError(_listing("the model and the declared ops disagree", resolution.problems))
        _check_providers(providers)
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        hosts = {key: hosting.host(op, taken) for key, op in resolution.ops.items()}
        changed = source.hosted(hosts)
        if changed is not source and source.folder is not None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", source.folder)
        hosted = list(hosts.values())
        if source.proto is None:  # a model in ORT format, whose nodes nobody reads or renames
            hosted = [hosting.Host(op.domain, op.name, op) for op in registry.latest() if op.domain not in taken]
        failure: BaseException | None = None
        with native.registered(options, hosted), _interrupts_deferred():
            try:
                super().__init__(changed.source, options, providers, provider_options, **kwargs)
            except Exception as error:
                failure = failures.pick_up(str(error)) or _explained(error, source, resolution)
        if failure is not None:
            try:
                raise failure
            finally:  # or the exception and this frame would keep each other
                del failure
        self._quiet_run: Any = None
        if options.log_severity_level == _UNSET:
            # The exception says all that ONNX Runtime would print.
            self._quiet_run = onnxruntime.RunOptions()
            self._quiet_run.log_severity_level = _FATAL
        types = {item.type for item in (*self.get_inputs(), *self.get_outputs())}
        self._has_foreign_types = not types.isdisjoint(ort_values.FOREIGN_TYPES)

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """Compute the outputs.

        Parameters
        ----------
        output_names : sequence of str or None
            None for all.
        input_feed : dict of str to array
            Arrays of bfloat16 and float8 (ml_dtypes) included.
        run_options : onnxruntime.RunOptions, optional

        Returns
        -------
        list of numpy.ndarray

        Raises
        ------
        BaseException
            Whatever a kernel raises, as itself.
        """
        if self._has_foreign_types:
            return _reraising(self._run_foreign, output_names, input_feed, run_options or self._quiet_run)
        # As in `_reraising`, one call less.
        native.arm()
        try:
            return super().run(output_names, input_feed, run_options or self._quiet_run)
        except Exception as error:
            failure = failures.pick_up(str(error))
            if failure is None:
                raise
        try:
            raise failure
        finally:
            del failure

    def _run_foreign(self, output_names: Any, input_feed: Any, run_options: Any) -> list[Any]:
        feed = {name: ort_values.from_array(value) for name, value in input_feed.items()}
        values = super().run_with_ort_values(output_names, feed, run_options)
        return [ort_values.to_array(value) for value in values]

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Any = None) -> Any:
        """As in ``onnxruntime.InferenceSession``; a kernel's exception is raised as itself."""
        run = super().run_with_ort_values
        return _reraising(run, output_names, input_dict_ort_values, run_options or self._quiet_run)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """As in ``onnxruntime.InferenceSession``; a kernel's exception is raised as itself."""
        _reraising(super().run_with_iobinding, iobinding, run_options or self._quiet_run)

    def run_with_ortvaluevector(self, run_options: Any, *args: Any) -> None:
        """As in ``onnxruntime.InferenceSession``; a kernel's exception is raised as itself."""
        _reraising(super().run_with_ortvaluevector, run_options, *args)


def register_custom_ops(options: Any) -> Any:
    """Add the declared ops and those of installed plug-ins to session options, for people who build their own session.

    Of several versions of an op, sessions see the highest. There, ONNX Runtime's own error carries
    the text of a kernel's exception, and `pyops.last_exception` gives the exception itself.

    Parameters
    ----------
    options : onnxruntime.SessionOptions
        Changed in place. Call this again after declaring more ops.

    Returns
    -------
    onnxruntime.SessionOptions
        The same object.

    Raises
    ------
    EngineError
        `options` is no SessionOptions, or ONNX Runtime cannot host Python kernels here.
    """
    plugins.import_all()
    hosts = [hosting.host(op, taken=set()) for op in registry.latest()]
    mistaken = [host.op.signature.qualified_name for host in hosts if hosting.is_mistaken(host.op)]
    if mistaken:
        warnings.warn(
            f"left out: {', '.join(mistaken)}, which ONNX Runtime's optimizers take for the ONNX operators of these "
            "names; run them in a pyops.InferenceSession, or name them otherwise",
            stacklevel=2,
        )
    with native.registered(options, [host for host in hosts if not hosting.is_mistaken(host.op)], keep=True):
        return options


def _reraising(run: Callable[..., Any], *args: Any) -> Any:
    native.arm()
    try:
        return run(*args)
    except Exception as error:
        failure = failures.pick_up(str(error))
        if failure is None:
            raise
    # Outside the handler, so that ONNX Runtime's error does not become the exception's context.
    try:
        raise failure
    finally:
        del failure


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Hold back SIGINT while ONNX Runtime asks about the ops.

    Those callbacks answer with numbers, which leaves no way to report an exception.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[Any] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if received and callable(previous):
            previous(*received[0])


def _check_providers(providers: Any) -> None:
    names = [item if isinstance(item, str) else item[0] for item in providers or ()]
    if "CUDAExecutionProvider" in names and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise MissingDependencyError(
            "CUDAExecutionProvider is asked for and this onnxruntime has none: on a machine with an NVIDIA GPU, "
            'pip uninstall onnxruntime, then pip install "onnx-pyops[cuda]"'
        )


def _explained(error: Exception, source: model.Model, resolution: model.Resolution) -> BaseException:
    """ONNX Runtime's refusal of a model, with the operators that it is about, where that can be told."""
    lines = model.unknown_operators(source, resolution)
    lines += model.mistyped_inputs(source, resolution, str(error))
    if not lines:
        lines += explanations(str(error))
    for op in resolution.ops.values():
        missing = ", ".join(unsupported_types(op.signature))
        if op.name in str(error) and (missing or not lines):
            lines.append(
                f"{op.signature} is declared" + (f"; custom operators cannot have {missing}" if missing else "")
            )
    if not lines:
        return error
    explained = ModelError(_listing(f"ONNX Runtime refuses the model ({error})", lines))
    explained.__cause__ = error
    return explained


def _listing(headline: str, lines: list[str]) -> str:
    return "\n".join([f"{headline}:", *(f"  - {line}" for line in lines)])
