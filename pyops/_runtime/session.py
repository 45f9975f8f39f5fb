"""Sessions that know the declared ops."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..errors import MissingDependencyError

try:
    import onnxruntime
except ImportError as error:
    raise MissingDependencyError(
        'sessions need ONNX Runtime, which is not installed: pip install "onnx-pyops[cpu]", or "onnx-pyops[cuda]" on '
        "a machine with an NVIDIA GPU (not both: they overwrite each other's files)"
    ) from error

from .._models import hosting, model, resolution
from .._models.model import ModelSource
from .._ops import adoption, plugins, registry
from .._ops.op import Op
from .._schema import devices
from ..errors import EngineError, InputError, ModelError
from . import external_data, ort_values, provider_refusals, session_devices
from .calls import exceptions
from .calls.guard import interrupts_deferred
from .engine_choice import Engine, choose
from .extensions import published
from .extensions import session as extensions
from .extensions.published import get_library_path as get_library_path
from .extensions.registry import published_domains
from .html import session_line, session_page
from .native import session as native
from .refusals import explained, listing, note_mistyped

_FATAL = 4
_UNSET = -1

R = TypeVar("R")
Options = TypeVar("Options")


class InferenceSession(onnxruntime.InferenceSession):
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
    engine : {"auto", "native", "extensions"}, optional
        How ONNX Runtime calls the ops: by its C API, or through onnxruntime-extensions, whose library
        `sess_options` then get. ``"auto"`` is native wherever that works.

    Raises
    ------
    FileNotFoundError
        There is no such model file.
    ModelError
        The source is no model, or a protobuf too large to be serialized; the model and the declared ops disagree; or
        ONNX Runtime refuses the model for want of an operator, and the message lists what is missing.
    EngineError
        The engine does not work here, or cannot carry an op of the model.
    PluginError
        An installed plug-in that the model needs is broken.
    MissingDependencyError
        The CUDA execution provider is asked for and this onnxruntime has none, or CuPy or onnxruntime-extensions
        are needed and not installed.
    DeviceError
        The CUDA execution provider is asked for and cannot be started, and why: no GPU that it can use, an option or a
        `device_id` that it refuses, or CUDA left unusable by an earlier error of the process.

    Examples
    --------
    >>> import numpy as np, onnx, pyops
    >>> from numpy.typing import NDArray
    >>> @pyops.onnx_op("sessions::Twice")
    ... def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x + x
    >>> session = pyops.InferenceSession(onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20, "sessions": 1]>
    ... main (float[n] x) => (float[n] y) { y = sessions.Twice(x) }'''))
    >>> session.run(None, {"x": np.array([1.5], np.float32)})
    [array([3.], dtype=float32)]
    """

    def __init__(
        self,
        path_or_bytes: ModelSource,
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, dict[Any, Any]]] | None = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        *,
        engine: Engine = "auto",
        **kwargs: Any,
    ) -> None:
        """Load a model, in which the declared ops run; the class says what the parameters are."""
        engine = choose(engine)
        source = model.load(path_or_bytes)
        if source.proto is None:
            plugins.import_all()
        resolution.import_plugins(source)
        adopted, taken = adoption.adopted_ops(), adoption.taken_domains() | published_domains()
        resolved = resolution.resolve(source, adopted, taken)
        if sess_options is None:  # nobody can have registered a library in them
            taken = set()
        if resolved.problems:
            raise ModelError(listing("the model and the declared ops disagree", resolved.problems))
        session_devices.check_available(providers)
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        self._extensions: extensions.SessionHost | None = None
        self._host: native.SessionHost | extensions.SessionHost
        if engine == "extensions":
            others = (*registry.latest(), *(op for op in adopted.values() if isinstance(op, Op)))
            fresh = sess_options is None
            self._host = self._extensions = extensions.SessionHost(options, source, resolved.ops, others, fresh)
            weakref.finalize(self, self._extensions.forget).atexit = False
        else:
            self._host = native.SessionHost(options, source, resolved.ops, taken)
        folder = source.folder if self._host.model is not source else None
        self._reading = functools.partial(external_data.read_from, folder, options, sess_options is None)
        kwargs |= session_devices.without_fallback(providers)
        create = functools.partial(super().__init__, self._host.model.source, options, **kwargs)
        del self._host.model  # which may be large
        self._create(create, providers, provider_options, lambda error: explained(error, source, resolved, engine))
        self._nodes = self._host.nodes
        if devices.CUDA_PROVIDER in self.get_providers():
            session_devices.tell_copies(resolved.ops.values(), engine)
        self._quiet_run: Any = None
        if options.log_severity_level == _UNSET:
            # The exception says all that ONNX Runtime would print.
            self._quiet_run = onnxruntime.RunOptions()
            self._quiet_run.log_severity_level = _FATAL
            # Its default. ONNX Runtime's run_with_iobinding looks for it, and takes an exception and ten times a short
            # run to find that it is not there.
            self._quiet_run.add_run_config_entry("gpu_graph_id", "0")
        types = {item.type for item in (*self.get_inputs(), *self.get_outputs())}
        self._has_foreign_types = not types.isdisjoint(ort_values.FOREIGN_TYPES)

    def _create(
        self,
        create: Callable[..., None],
        providers: Any,
        provider_options: Any,
        refusal: Callable[[Exception], BaseException],
    ) -> None:
        failure: BaseException | None = None
        # ONNX Runtime asks about the ops, and the answers are numbers.
        with interrupts_deferred(), self._reading():
            try:
                self._host.create(functools.partial(create, providers=providers, provider_options=provider_options))
            except Exception as error:  # ONNX Runtime's, of whatever type
                failure = self._host.raised_by_kernel(error)
                if failure is None:
                    failure = provider_refusals.explained(error, providers, provider_options) or refusal(error)
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # the exception keeps this frame
        session_devices.check_started(providers, self.get_providers())
        self._keeps_part_of_graph = False

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """As in ``onnxruntime.InferenceSession``, which makes the session anew; the ops run in it as before."""
        session_devices.check_available(providers)
        self._create(super().set_providers, providers, provider_options, lambda error: error)

    def __repr__(self) -> str:
        if not hasattr(self, "_nodes"):  # it could not be created
            return super().__repr__()
        engine = "native" if self._extensions is None else "extensions"
        return session_line(self.get_inputs(), self.get_outputs(), self.get_providers(), engine, len(list(self._nodes)))

    def _repr_html_(self) -> str:
        engine = "native" if self._extensions is None else "extensions"
        nodes = [(name, op.signature, op.kernels["cpu"]) for name, op in self._nodes]
        return session_page(self.get_inputs(), self.get_outputs(), self.get_providers(), engine, nodes)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
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
        list
            A numpy.ndarray per output; of an output that is no tensor, what ONNX Runtime makes of it.

        Raises
        ------
        InputError
            An input or a wanted output is no tensor, beside one of bfloat16, float8 or a 4-bit type.
        DeviceError
            A node failed in an earlier run where it may have been captured into a CUDA graph, of which a part is left.
        BaseException
            Whatever a kernel raises, as itself.
        """
        if self._has_foreign_types:
            return self._reraising(functools.partial(self._run_foreign, output_names, input_feed), run_options)
        if self._extensions is not None:
            self._extensions.check_feed(input_feed)
            return self._reraising(functools.partial(super().run, output_names, input_feed), run_options)
        # As in `_reraising`, without its calls, nor that of super(): of one element they are a twentieth of a run.
        if self._keeps_part_of_graph:
            session_devices.refuse_part_of_graph()
        native.arm()
        try:
            return onnxruntime.InferenceSession.run(self, output_names, input_feed, run_options or self._quiet_run)
        except Exception as error:  # ONNX Runtime's, of whatever type
            failure = self._raised_by_kernel(error)
            if failure is None:
                note_mistyped(error, self.get_inputs(), input_feed)
                raise
        try:
            raise failure
        finally:
            del failure

    def _run_foreign(self, output_names: Any, input_feed: Any, run_options: Any) -> list[Any]:
        # They travel as OrtValue, which ONNX Runtime's bindings neither make of a sequence nor read one from.
        fetched = [item for item in self.get_outputs() if not output_names or item.name in output_names]
        for item in (*self.get_inputs(), *fetched):
            if not item.type.startswith("tensor("):
                raise InputError(
                    f"{item.name!r} is {item.type}; in a model with inputs or outputs of bfloat16, float8 or 4-bit "
                    "types, ONNX Runtime's bindings take and give tensors alone: ask for other outputs by name, or "
                    "take it apart inside the model"
                )
        feed = {name: ort_values.from_array(value) for name, value in input_feed.items()}
        values = super().run_with_ort_values(output_names, feed, run_options)
        return [ort_values.to_array(value) for value in values]

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Any = None) -> Any:
        """As in ``onnxruntime.InferenceSession``; a kernel's exception is raised as itself."""
        run = super().run_with_ort_values
        return self._reraising(functools.partial(run, output_names, input_dict_ort_values), run_options)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """As in ``onnxruntime.InferenceSession``; a kernel's exception is raised as itself."""
        self._reraising(functools.partial(super().run_with_iobinding, iobinding), run_options)

    def run_with_ortvaluevector(self, run_options: Any, *args: Any) -> None:
        """As in ``onnxruntime.InferenceSession``; a kernel's exception is raised as itself."""
        run = super().run_with_ortvaluevector
        self._reraising(lambda run_options: run(run_options, *args), run_options)

    def run_async(self, *args: Any, **kwargs: Any) -> None:
        """As in ``onnxruntime.InferenceSession``; the callback gets the text of a kernel's exception.

        Raises
        ------
        EngineError
            The engine is onnxruntime-extensions, where nothing tells to which run a kernel belongs.
        """
        if self._extensions is not None:
            raise EngineError("the extensions engine has no run_async; call run in a thread of your own")
        super().run_async(*args, **kwargs)

    def _reraising(self, run: Callable[[Any], R], run_options: Any) -> R:
        if self._extensions is not None:
            return self._extensions.run(run, run_options, quiet=self._quiet_run is not None)
        if self._keeps_part_of_graph:
            session_devices.refuse_part_of_graph()
        native.arm()
        try:
            return run(run_options or self._quiet_run)
        except Exception as error:  # ONNX Runtime's, of whatever type
            failure = self._raised_by_kernel(error)
            if failure is None:
                raise
        # Outside the handler, so that ONNX Runtime's error does not become the exception's context.
        try:
            raise failure
        finally:
            del failure

    def _raised_by_kernel(self, error: Exception) -> BaseException | None:
        """Return the exception of a kernel that made ONNX Runtime raise `error` in a run."""
        failed = native.take_failed(self._nodes)
        if session_devices.keeps_part_of_graph(error, failed, self.get_provider_options()):
            self._keeps_part_of_graph = True
        # Of a capture that is void, ONNX Runtime raises its own error.
        raised = (exceptions.pick_up(str(error)), *failed)
        return next((item for item in raised if item is not None), None)  # an exception may be false


def register_custom_ops(options: Options, engine: Engine = "auto") -> Options:
    """Add the declared ops and those of installed plug-ins to session options, for people who build their own session.

    Of several versions of an op, sessions see the highest. There, ONNX Runtime's own error carries
    the text of a kernel's exception, and `pyops.last_exception` gives the exception itself.

    Parameters
    ----------
    options : onnxruntime.SessionOptions
        Changed in place. Call this again after declaring more ops.
    engine : {"auto", "native", "extensions"}, optional
        As for `InferenceSession`.

    Returns
    -------
    onnxruntime.SessionOptions
        The same object.

    Raises
    ------
    EngineError
        `options` is no SessionOptions, or the engine does not work here.
    MissingDependencyError
        The engine is onnxruntime-extensions, which is not installed.

    Examples
    --------
    >>> import numpy as np, onnx, onnxruntime, pyops
    >>> from numpy.typing import NDArray
    >>> @pyops.onnx_op("options::Half")
    ... def half(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x / np.float32(2)
    >>> options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    >>> model = onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20, "options": 1]>
    ... main (float[n] x) => (float[n] y) { y = options.Half(x) }''')
    >>> session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    >>> session.run(None, {"x": np.array([3], np.float32)})
    [array([1.5], dtype=float32)]
    """
    if choose(engine) == "extensions":
        published.register(options)
        return options
    plugins.import_all()
    ops = registry.latest()
    mistaken = [op.signature.qualified_name for op in ops if hosting.is_mistaken(op)]
    if mistaken:
        warnings.warn(
            f"left out: {', '.join(mistaken)}, which ONNX Runtime's optimizers take for the ONNX operators of these "
            "names; run them in a pyops.InferenceSession, or name them otherwise",
            stacklevel=2,
        )
    with native.registered(options, [host for op in ops for host in hosting.plain_hosts(op)], keep=True):
        return options
