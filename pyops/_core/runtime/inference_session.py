"""The public session class, and registration of ops on plain session options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...errors import MissingDependencyError

try:
    import onnxruntime
except ImportError as error:
    raise MissingDependencyError(
        'sessions need ONNX Runtime, which is not installed: pip install "onnx-pyops[cpu]", or "onnx-pyops[cuda]" on '
        "a machine with an NVIDIA GPU (not both: they overwrite each other's files)"
    ) from error

import numpy as np
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail

from ..._support.element_types import format_shape
from ..._support.text_tables import html_parts, printable
from ...errors import DeviceError, EngineError, FilledNodeWarning, InputError, ModelError, did_you_mean, warn
from ..cuda import cuda_provider, devices
from ..models import hosting, model, op_resolution
from ..models.model import ModelSource
from ..ops import extensions_decorators, op_registry, plugins
from ..ops.op import AnyOp
from ..ops.source_location import source_line
from ..satellites import satellite
from ..unpickling import unpickle
from . import kernel_exceptions, ort_values
from .callback_guard import signals_deferred
from .engine_choice import Engine, choose
from .external_data import read_external_data
from .lazy_session import LazySession
from .load_errors import explained, listing, note_mistyped
from .native import op_registration as native
from .native.session_options import library_ops
from .session_arguments import Origin, origin_of, session_options
from .session_pickling import Recipe

_FATAL = 4
_UNSET = -1

_ORT_RUN = onnxruntime.InferenceSession.run
# The names that ONNX Runtime's own `run` uses in the releases that were checked: given arrays, it only looks for
# missing inputs, calls the bindings, and falls back to another provider. If it uses other names, it is called itself.
_READ = {
    *("_validate_graph_capture_run_api", "_validate_input", "_validate_ortvalue_ownership", "_outputs_meta", "name"),
    *("list", "keys", "values", "_sess", "run", "C", "EPFail", "_enable_fallback", "print", "_providers"),
    *("_fallback_providers", "set_providers", "disable_fallback"),
}
_IS_READ = _READ.issuperset(_ORT_RUN.__code__.co_names)

# pybind11 sets up its use of NumPy for the first array that leaves ONNX Runtime; the handler of a signal that ran a
# session meanwhile would wait for that for ever.
with signals_deferred():
    onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(1, np.float32)).numpy()

# The keywords that `onnxruntime.InferenceSession` reads from its **kwargs.
_OF_ONNXRUNTIME = ("disabled_optimizers", "enable_fallback", "read_config_from_model")
KEYWORDS = (
    *("sess_options", "providers", "provider_options", "engine", "worker_threads", "fill_missing"),
    *_OF_ONNXRUNTIME,
)
"""The keyword arguments of an `InferenceSession` besides the model."""

R = TypeVar("R")
Options = TypeVar("Options")


class InferenceSession(LazySession, onnxruntime.InferenceSession):
    """An ``onnxruntime.InferenceSession`` that runs the declared ops.

    An exception raised in a kernel reaches the caller unchanged, with a note that names the node. Functions declared
    with onnxruntime-extensions' own ``onnx_op`` also run.

    Parameters
    ----------
    path_or_bytes : str, os.PathLike, bytes, onnx.ModelProto or torch.onnx.ONNXProgram
        The model.
    sess_options : onnxruntime.SessionOptions, or a function that returns one, optional
        Other custom-op libraries may be registered in it, and several sessions may share it. The ops in a library that
        `pyops.build` made are computed by that library. A function is called again in each process that the session is
        pickled to.
    providers, provider_options, **kwargs
        As for ``onnxruntime.InferenceSession``, which knows the keywords `disabled_optimizers`, `enable_fallback` and
        `read_config_from_model`.
    engine : {"auto", "native", "extensions"}, optional
        How ONNX Runtime calls the ops: through its C API, or through onnxruntime-extensions, whose library
        is then registered in `sess_options`. ``"auto"`` is native wherever that works.
    worker_threads : int, optional
        The number of threads in processes that the session is pickled to or that inherit it by a fork. The default
        is the ``intra_op_num_threads`` of `sess_options` if set, otherwise the environment variable OMP_NUM_THREADS,
        otherwise 1 in processes that multiprocessing started.
    fill_missing : bool, optional
        Whether to compute the nodes that ONNX Runtime has no kernel for: by its kernel of a wider element type between
        Cast nodes, or else by onnx's reference implementation, in NumPy. A `FilledNodeWarning` names them.

    Raises
    ------
    InputError
        A keyword or an execution provider is unknown, or an argument has an invalid value.
    FileNotFoundError
        The model file does not exist.
    ModelError
        The source is of another type, or a protobuf too large to be serialized; the model does not match the declared
        ops; or ONNX Runtime rejects the model because of an operator, which the message names.
    EngineError
        `engine` is unknown or does not work on this machine, or the extensions engine does not support the model.
    PluginError
        An installed plug-in that the model needs is broken.
    MissingDependencyError
        The CUDA execution provider is requested and this onnxruntime has none, or CuPy or onnxruntime-extensions
        are needed and not installed.
    DeviceError
        The CUDA execution provider is requested and cannot start: no usable GPU, an invalid option or `device_id`,
        or CUDA left unusable by an earlier error in this process.

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
        worker_threads: int | None = None,
        fill_missing: bool = False,
        **kwargs: Any,
    ) -> None:
        """Load a model and create its session; see the class for the parameters."""
        _check_keywords(fill_missing, kwargs)
        cuda_provider.check_available(providers)
        source = model.load_model(path_or_bytes)
        given = kwargs | {"fill_missing": True} if fill_missing else kwargs
        origin = origin_of(source, sess_options, providers, provider_options, engine, worker_threads, given)
        options, engine = session_options(sess_options), choose(engine)
        self._extensions = satellite("extensions") if engine == "extensions" else None
        host, resolved, in_libraries = _hosting(source, options, engine)
        if fill_missing:
            source.parsed(
                "fill_missing=True needs the nodes of an ONNX model; a model in ORT format cannot be changed: fill the "
                "nodes of the model that it was made from"
            )
        chosen = {"providers": providers, "provider_options": provider_options}
        settings = chosen | kwargs | cuda_provider.without_fallback(providers)
        attempt = functools.partial(self._attempt, host, options, settings)
        filling = None
        refusal = attempt(source, resolved.ops)
        others = {key: op for key, op in resolved.ops.items() if key not in source.functions()}
        if refusal is not None and others != resolved.ops and attempt(source, others) is None:
            # The functions may be right for types for which the ops of these names are not declared.
            names = ", ".join("::".join(key) for key in resolved.ops.keys() - others.keys())
            warn(f"functions of the model run instead of the kernels of {names}: {refusal}")
            resolved.ops, refusal = others, None
        if refusal is not None and fill_missing:
            # A model that ONNX Runtime accepts lacks nothing, so only rejected models are examined.
            filling = satellite("filling").fill(source, resolved.ops, providers)
            if filling.model is not source:
                refusal = None  # its traceback refers to the session that was refused
                refusal = attempt(filling.model, {**resolved.ops, **filling.ops})
        if refusal is not None:
            try:
                raise explained(refusal, source, resolved, engine, filling, in_libraries)
            finally:
                del refusal  # it refers to this frame
        if filling and filling.message:
            warn(filling.message, FilledNodeWarning)
        self._nodes = self._host.nodes
        self._quiet_run = _quiet_run(self._sess_options)
        if devices.CUDA_PROVIDER in self.get_providers():
            cuda_provider.warn_copies(resolved.ops.values(), engine)
        # In ORT format the ops are known once ONNX Runtime has created the nodes.
        origin.ops = tuple(resolved.ops.values() if source.proto else {op: None for _, op in self._nodes})
        self._watch(origin)

    def _attempt(
        self, host: Callable[..., Any], given: Any, settings: Any, source: model.Model, ops: Mapping[model.Key, AnyOp]
    ) -> Exception | None:
        """Create the session for a model; return ONNX Runtime's error if it rejects the model."""
        options = onnxruntime.SessionOptions() if given is None else given
        self._host = host(options, source, ops)
        source = self._host.model
        folder = source.folder if isinstance(source.source, bytes) else None
        self._reading = functools.partial(read_external_data, folder, options, given is None)
        create = functools.partial(super().__init__, source.source, options, **settings)
        del self._host.model, source  # which may be large
        return self._create(create, settings["providers"])

    @classmethod
    def _made_from(cls, origin: Origin) -> InferenceSession:
        return InferenceSession(
            origin.source,
            origin.options,
            origin.providers,
            origin.provider_options,
            engine=origin.engine,
            worker_threads=origin.threads,
            **origin.kwargs,
        )

    def _create(self, create: Callable[[], None], providers: Any) -> Exception | None:
        """Call `create`; return ONNX Runtime's error if it rejects the model, and raise any other."""
        failures: list[BaseException] = []  # popped when raised: an exception refers to this frame
        try:
            self._reading(functools.partial(self._host.create, create))
        except Exception as error:
            if not kernel_exceptions.is_of_onnxruntime(error):  # from a kernel, or from the handler of a signal
                raise
            found = kernel_exceptions.take(str(error)), cuda_provider.explained(error)
            failures += [failure for failure in found if failure is not None][:1]
            del found
            if not failures:
                return error
        if failures:
            raise failures.pop()
        cuda_provider.check_started(providers, self.get_providers())
        inputs = self.get_inputs()
        self._has_foreign_types = not ort_values.FOREIGN_TYPES.isdisjoint(
            item.type for item in (*inputs, *self.get_outputs())
        )
        for_cuda = self.get_provider_options().get(devices.CUDA_PROVIDER, {})
        self._captures_graphs = for_cuda.get("enable_cuda_graph") == "1"
        captures = self._captures_graphs or getattr(self._sess, "is_webgpu_graph_capture_enabled", bool)()
        is_direct = _IS_READ and self._extensions is None and not self._has_foreign_types and not captures
        try:
            required = frozenset(item.name for item in inputs if not item.type.startswith("optional"))
            self._output_names = [item.name for item in self.get_outputs()]
        except UnicodeDecodeError as error:
            return error
        self._required = required if is_direct else None
        return None

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Recreate the session with other providers, as ``onnxruntime.InferenceSession`` does, with the same ops."""
        cuda_provider.check_available(providers)
        refusal = self._create(functools.partial(super().set_providers, providers, provider_options), providers)
        if refusal is not None:
            try:
                raise refusal
            finally:
                del refusal  # it refers to this frame
        self._origin = replace(self._origin, providers=providers, provider_options=provider_options)

    def __reduce__(self) -> tuple[Any, ...]:
        cls = type(self)
        return unpickle, ("session", self._recipe(), None if cls is InferenceSession else cls)

    def _engine(self) -> str:
        return "native" if self._extensions is None else "extensions"

    def __repr__(self) -> str:
        if self._is_pending:
            return f"<{type(self).__name__}, to be created on first use>"
        if not hasattr(self, "_nodes"):  # it could not be created
            return super().__repr__()
        given, results = (", ".join(item.name for item in items) for items in (self.get_inputs(), self.get_outputs()))
        return printable(
            f"<InferenceSession on {', '.join(self.get_providers())}, {self._engine()} engine; inputs: {given}; "
            f"outputs: {results}; nodes computed by ops: {len(list(self._nodes))}>"
        )

    def _repr_html_(self) -> str:
        values: list[Sequence[str]] = [("", "name", "type", "shape")]
        for kind, items in (("input", self.get_inputs()), ("output", self.get_outputs())):
            values += [(kind, item.name, item.type, format_shape(item.shape)) for item in items]
        nodes: list[Sequence[str]] = [("node", "op", "version", "kernel")]
        for name, op in self._nodes:
            nodes.append((name, op.signature.qualified_name, str(op.version), source_line(op.kernels["cpu"])))
        headline = f"InferenceSession on {', '.join(self.get_providers())}, ops hosted by the {self._engine()} engine"
        return html_parts([headline, values, nodes if len(nodes) > 1 else "no node is computed by a declared op"])

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Run the model and return its outputs.

        Parameters
        ----------
        output_names : sequence of str or None
            The outputs to compute; None for all.
        input_feed : dict of str to array
            The inputs by name; arrays of the types of ml_dtypes (bfloat16, float8, int4, ...) are accepted too.
        run_options : onnxruntime.RunOptions, optional
            As for ``onnxruntime.InferenceSession.run``.

        Returns
        -------
        list
            A numpy.ndarray per output; non-tensor outputs are returned as ONNX Runtime returns them.

        Raises
        ------
        InputError
            An input is an array in another byte order than this machine's, or masked; or the session captures CUDA
            graphs, which need `run_with_iobinding`; or the model has inputs or outputs of bfloat16, float8, 4-bit or
            2-bit types, and an input or requested output is not a tensor, or an input is a tensor of strings; or the
            extensions engine does not support a string.
        BaseException
            Any exception that a kernel raises, unchanged.
        """
        if (
            (required := self._required) is not None
            and type(input_feed) is dict
            and required <= input_feed.keys()
            and onnxruntime.InferenceSession.run is _ORT_RUN
        ):
            for value in input_feed.values():
                if type(value) is not np.ndarray or not value.dtype.isnative:
                    break
            else:
                native.arm()
                try:
                    result: list[Any] = self._sess.run(
                        output_names or self._output_names, input_feed, run_options or self._quiet_run
                    )
                    return result
                except EPFail:
                    if not self._enable_fallback:
                        raise
                    # ONNX Runtime's own run tries another provider.
                    return self._reraising(super().run, run_options, output_names, input_feed)
                except Exception as error:
                    failures = self._in_place_of(error, input_feed)
                    if not failures:
                        raise
                raise failures.pop()
        self._check_not_captured(run_options)
        ort_values.check_arrays(input_feed)
        if self._extensions is not None:
            for name, value in input_feed.items():
                self._extensions.check_input(name, value)
        run = self._run_foreign if self._has_foreign_types else super().run
        return self._reraising(run, run_options, output_names, input_feed)

    def _run_foreign(self, output_names: Any, input_feed: Any, run_options: Any) -> list[Any]:
        # Foreign types need OrtValues. ONNX Runtime's bindings convert no sequences to or from OrtValues, and no
        # strings to them.
        wanted = [item for item in self.get_outputs() if not output_names or item.name in output_names]
        lacking = [item for item in self.get_inputs() if item.type == "tensor(string)"]
        lacking += [item for item in (*self.get_inputs(), *wanted) if not item.type.startswith("tensor(")]
        if lacking:
            raise InputError(
                f"{lacking[0].name!r} is {lacking[0].type}; in a model with inputs or outputs of bfloat16, float8, "
                "4-bit or 2-bit types, ONNX Runtime's bindings support only tensors, and no strings as inputs: request "
                "other outputs by name, or convert it inside the model"
            )
        feed = {name: ort_values.from_array(value) for name, value in input_feed.items()}
        values = super().run_with_ort_values(output_names, feed, run_options)
        return [ort_values.to_array(value) for value in values]

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Any = None) -> Any:
        """Run the model on OrtValues, as in ``onnxruntime``; a kernel's exception is raised unchanged."""
        self._check_not_captured(run_options)
        return self._reraising(super().run_with_ort_values, run_options, output_names, input_dict_ort_values)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Run the model on bound memory, as in ``onnxruntime``; a kernel's exception is raised unchanged."""
        self._reraising(super().run_with_iobinding, run_options, iobinding)

    def run_with_ortvaluevector(self, run_options: Any, *args: Any) -> None:
        """Run the model on OrtValue vectors, as in ``onnxruntime``; a kernel's exception is raised unchanged."""
        self._check_not_captured(run_options)
        run = super().run_with_ortvaluevector
        self._reraising(lambda run_options: run(run_options, *args), run_options)

    def run_async(
        self, output_names: Any, input_feed: Any, callback: Any, user_data: Any, run_options: Any = None
    ) -> None:
        """Run the model asynchronously; the callback gets the text of a kernel's exception.

        Raises
        ------
        EngineError
            The engine is onnxruntime-extensions, which cannot tell which run a kernel call belongs to.
        InputError
            The session captures CUDA graphs, which need `run_with_iobinding`.
        """
        if self._extensions is not None:
            raise EngineError("the extensions engine has no run_async; call run in a thread of your own")
        self._check_not_captured(run_options)

        def call_back(results: Any, user_data: Any, message: str) -> None:
            failure = kernel_exceptions.take(message)
            callback(
                results, user_data, message if failure is None else f"{message}\n{kernel_exceptions.describe(failure)}"
            )

        super().run_async(output_names, input_feed, call_back, user_data, run_options)

    def _check_not_captured(self, run_options: Any) -> None:
        if self._captures_graphs:
            cuda_provider.check_not_captured(run_options)

    def _reraising(self, run: Callable[..., R], run_options: Any, *arguments: Any) -> R:
        """Return ``run(*arguments, run_options)``; raise a kernel's exception in it unchanged."""
        if self._extensions is not None:
            own = None if run_options else _quiet_run(self._sess_options) or onnxruntime.RunOptions()
            return self._extensions.watch(functools.partial(run, *arguments, own or run_options), own)
        native.arm()
        try:
            return run(*arguments, run_options or self._quiet_run)
        except Exception as error:  # ONNX Runtime raises several unrelated types
            failures = self._in_place_of(error, arguments[-1] if arguments else None)
            if not failures:
                raise
        # Raised outside the handler, so that ONNX Runtime's error does not become the exception's context.
        raise failures.pop()

    def _in_place_of(self, error: Exception, feed: Any) -> list[BaseException]:
        """Return the kernel's exception for ONNX Runtime's error in a run, or nothing, and add a note to that error.

        In a list, from which it is removed when it is raised: its traceback refers to the frame that raises it.
        """
        # When the capture of a CUDA graph was invalidated, ONNX Runtime raises an error of its own.
        for failure in (kernel_exceptions.take(str(error)), *native.take_failed(self._nodes)):
            if failure is not None:  # an exception may define __bool__
                if isinstance(failure, EngineError):
                    note_mistyped(failure, self.get_inputs(), feed)
                return [failure]
        note_mistyped(error, self.get_inputs(), feed)
        return []


def _hosting(
    source: model.Model, options: Any, engine: str
) -> tuple[Callable[..., Any], op_resolution.Resolution, set[model.Key]]:
    """Return what makes the engine's part of a session, the ops of a model, and those that libraries compute.

    The plug-ins that the model needs are imported.

    Parameters
    ----------
    options : onnxruntime.SessionOptions or None
        Those that were given.

    Raises
    ------
    ModelError
        The model does not match the declared ops.
    """
    if source.proto is None:
        plugins.import_all_plugins()
    in_libraries = library_ops(options, op_registry.op_domains() | {domain for domain, _ in source.imports()})
    op_resolution.import_plugins_of(source, in_libraries)
    adopted, taken = extensions_decorators.adopted_ops(), extensions_decorators.taken_domains()
    if taken:
        taken |= satellite("extensions").sizes.keys()
    resolved = op_resolution.resolve_ops(source, adopted, taken, in_libraries)
    if resolved.problems:
        raise ModelError(listing("the model and the declared ops disagree", resolved.problems))
    _leave_to_functions(source, resolved.ops)
    if engine == "extensions":
        return functools.partial(satellite("extensions").SessionHost, fresh=options is None), resolved, in_libraries
    if options is None:  # new options, so no library is registered in them
        taken = set()
    taken |= {domain for domain, _ in in_libraries}
    return functools.partial(native.SessionHost, taken=taken), resolved, in_libraries


def _leave_to_functions(source: model.Model, ops: dict[model.Key, AnyOp]) -> None:
    """Leave out ops that have only a CUDA kernel, where there is no GPU, and the model has a function that runs."""
    for key in source.functions() & ops.keys():
        if "cpu" not in ops[key].device_types:
            try:
                devices.cupy_with_gpu(f"{ops[key].signature.qualified_name}, which has only a CUDA kernel,")
            except (DeviceError, MissingDependencyError) as error:
                warn(f"{error}. The function of the model runs instead")
                del ops[key]


def _check_keywords(fill_missing: Any, others: Mapping[str, Any]) -> None:
    for name in others.keys() - set(_OF_ONNXRUNTIME):
        meant = did_you_mean(name, KEYWORDS)
        raise InputError(f"InferenceSession got an unknown keyword {name!r}{meant}; it takes {', '.join(KEYWORDS)}")
    if not isinstance(fill_missing, bool):
        raise InputError(f"fill_missing is {fill_missing!r}; it must be True or False")


def _quiet_run(options: Any) -> Any:
    """Return run options that print nothing; None if the session's options say what to print."""
    if options.log_severity_level != _UNSET:
        return None
    # The exception contains all that ONNX Runtime would print.
    quiet = onnxruntime.RunOptions()
    quiet.log_severity_level = _FATAL
    # The default value. Without the entry, ONNX Runtime's run_with_iobinding throws and catches an exception in every
    # run, which takes ten times as long as a short run itself.
    quiet.add_run_config_entry("gpu_graph_id", "0")
    return quiet


def unpickled(recipe: Recipe, cls: type[InferenceSession] | None) -> InferenceSession:
    """Return the session of a pickle, created on first use; `cls` is None for pyops' own class."""
    return (cls or InferenceSession)._unpickled(recipe)


def register_custom_ops(options: Options, engine: Engine = "auto") -> Options:
    """Register the declared ops, and those of installed plug-ins, in session options.

    For code that creates plain ``onnxruntime`` sessions. Of several versions of an op, sessions use the highest. In
    such sessions, ONNX Runtime's own error contains the text of a kernel's exception, and `pyops.last_exception`
    returns the exception itself.

    Parameters
    ----------
    options : onnxruntime.SessionOptions
        Changed in place. Call this again after declaring more ops.
    engine : {"auto", "native", "extensions"}, optional
        As in `InferenceSession`.

    Returns
    -------
    onnxruntime.SessionOptions
        The same object.

    Raises
    ------
    EngineError
        `options` is not a SessionOptions object; `engine` is unknown or does not work on this machine; or the
        extensions engine was registered in `options` before some of the ops were declared.
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
        satellite("extensions").register(options)
        return options
    plugins.import_all_plugins()
    ops = op_registry.latest()
    in_libraries = library_ops(options, op_registry.op_domains())
    ops = [op for op in ops if (op.domain, op.name) not in in_libraries]
    beside = [op for op in ops if op.domain in {domain for domain, _ in in_libraries}]
    ops = [op for op in ops if op not in beside]
    mistaken = [op for op in ops if hosting.is_mistaken(op)]
    for left_out, reason in (
        (beside, "a library in the session options has their domain; build them into the library"),
        (mistaken, "ONNX Runtime's optimizers mistake them for the ONNX operators of these names; rename them"),
    ):
        if left_out:
            names = ", ".join(op.signature.qualified_name for op in left_out)
            warn(f"skipped ops: {names}, because {reason}, or run them in a pyops.InferenceSession")
    native.register(options, [host for op in ops for host in hosting.plain_hosts(op)])
    return options
