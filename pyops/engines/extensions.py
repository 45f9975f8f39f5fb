"""Hosts an Op through onnxruntime-extensions' ``PyCustomOpDef``, where ONNX Runtime's C API cannot be used.

In a session of pyops the model is rewritten: a node goes to an operator that has the right types, and
a string attribute tells which node it is. Name, attributes and op are looked up by it, so that those
that onnxruntime-extensions cannot hand on are there all the same.
"""

from __future__ import annotations

import functools
import itertools
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

from .. import failures, hosting, plugins, registry
from ..builtin import ONNX_DOMAIN
from ..errors import EngineError, InputError, OutputError
from ..hosting import Host
from ..model import Model
from ..node import add_note, describe_node, read_attributes
from ..op import Op
from ..signature import AttributeKind, Signature
from ..types import STRING, dtype_name
from . import extensions_hook as hook
from . import extensions_registry as extensions
from . import extensions_runs
from .extensions_registry import PLACE_TYPE as PLACE_TYPE
from .extensions_runs import Run, this_thread

AnyOp = Op[..., Any]


def obstacles(signature: Signature) -> list[str]:
    """Why onnxruntime-extensions cannot carry an op; empty where it can."""
    found = [f"optional input {item.name!r}" for item in signature.inputs if item.optional]
    found += [f"variadic input {item.name!r}" for item in signature.inputs if item.variadic]
    found += [f"variadic output {item.name!r}" for item in signature.outputs if item.variadic]
    for parameter in signature.type_parameters:
        if not set(parameter.dtypes) & set(extensions.CARRIED):
            found.append(f"type {' or '.join(map(dtype_name, parameter.dtypes))}")
    if len(signature.outputs) > hook.MOST_OUTPUTS:
        found.append(f"more than {hook.MOST_OUTPUTS} outputs")
    if not found and len(extensions.choices(signature)) > extensions.MOST_CHOICES:
        found.append(f"more than {extensions.MOST_CHOICES} choices of its types")
    return found


def unsupported_types(signature: Signature) -> list[str]:
    """Names of the declared element types that onnxruntime-extensions lacks."""
    dtypes = dict.fromkeys(dtype for parameter in signature.type_parameters for dtype in parameter.dtypes)
    return [dtype_name(dtype) for dtype in dtypes if dtype not in extensions.CARRIED]


def refusal(signature: Signature, reasons: Sequence[str]) -> str:
    """One line that says why an op cannot run here, and where it can."""
    listed = ", ".join(reasons)
    return f"{signature.qualified_name}: onnxruntime-extensions cannot carry its {listed}; the native engine can"


def answer(signature: Signature, outputs: Sequence[Any]) -> hook.Answer:
    """What a kernel returned, as onnxruntime-extensions takes it.

    Raises
    ------
    OutputError
        A string holds a NUL character.
    """
    result: list[Any] = [0]
    for item, array in zip(signature.outputs, outputs, strict=True):
        result += [array.shape, _strings(signature, item.name, array) if array.dtype is STRING else _flat(array)]
    return tuple(result).__iter__


def _flat(array: Any) -> Any:
    return array.reshape(-1) if array.flags.c_contiguous else array.flatten()


def _strings(signature: Signature, name: str, array: Any) -> list[bytes]:
    texts = [text.encode() for text in array.flat]
    if any(b"\0" in text for text in texts):
        raise OutputError(
            f"{signature.qualified_name}: {name!r} holds a NUL character, at which onnxruntime-extensions cuts strings "
            "off; the native engine carries it"
        )
    return texts


class _Node(NamedTuple):
    """A node of a session of ours."""

    session: SessionHost
    name: str
    op: AnyOp
    attributes: Mapping[str, Any]


_nodes: dict[str, _Node] = {}
_numbers = itertools.count(1)


def _compute(call: hook.HookCall) -> hook.Answer:
    node = _nodes[call.attributes[extensions.NODE]]
    runs = node.session.runs_here()
    if any(run.failure for run in runs):
        return hook.NOTHING
    signature = node.op.signature
    try:
        return answer(signature, node.op.compute(call.inputs, signature.convert_attributes(node.attributes)))
    except BaseException as error:
        add_note(error, describe_node(node.name, signature, call.inputs))
        failures.remember(error)
        for run in runs:
            run.fail(error)
        if not runs:
            extensions_runs.fail(error)
        return hook.NOTHING


_target = hook.add_target(_compute)


class SessionHost:
    """What one `pyops.InferenceSession` has from this engine.

    Attributes
    ----------
    model : Model
        As ONNX Runtime can take it.

    Parameters
    ----------
    ops : mapping
        The ops that the model needs, by domain and name.
    declared : iterable of Op
        Those that a later session of these options may need.
    fresh : bool
        Whether the options are new, and for this session alone. Others may hold the library already, which
        they cannot take twice.

    Raises
    ------
    EngineError
        An op cannot be hosted here, or `options` hold the library from before it was declared.
    """

    def __init__(
        self,
        options: Any,
        source: Model,
        ops: Mapping[tuple[str, str], AnyOp],
        declared: Iterable[AnyOp],
        fresh: bool,
    ) -> None:
        if source.proto is None:
            raise EngineError(
                "the extensions engine rewrites the model, which must be an ONNX model and not in ORT format; "
                "use engine='native'"
            )
        refused = [refusal(op.signature, reasons) for op in ops.values() if (reasons := obstacles(op.signature))]
        if refused:
            lines = "\n".join(f"  - {line}" for line in refused)
            raise EngineError(f"the extensions engine cannot host the model's ops:\n{lines}")
        self._active: list[Run] = []
        self._keys: list[str] = []
        with extensions.lock:
            extensions.library()
            hosts = {key: Host(_place(op), extensions.PLACE_TYPE, op) for key, op in ops.items()}
            if not fresh:
                _place_all(declared)
        self._fresh = fresh
        self._options, self._needed = options, {host.domain for host in hosts.values()}
        self.model = source.inlined(hosts).hosted(hosts, self._mark)
        types = [parameter for op in ops.values() for parameter in op.signature.type_parameters]
        self._has_strings = any(STRING in parameter.dtypes for parameter in types)
        for name, tensor in source.constants() if self._has_strings else ():
            _check_strings(f"constant {name!r}", tensor.string_data)

    def _mark(self, node: Any, op: AnyOp) -> None:
        key = str(next(_numbers))
        _nodes[key] = _Node(self, node.name, op, read_attributes(node, op.signature))
        self._keys.append(key)
        node.ClearField("attribute")
        node.attribute.add(name=extensions.NODE, type=3, s=key.encode())
        names = [*node.output, *[""] * (len(op.signature.outputs) - len(node.output))]
        node.ClearField("output")
        node.output.extend(name or f"_pyops_{key}_{index}" for index, name in enumerate(names))

    def create(self, function: Callable[[], None]) -> None:
        """Create the session by `function`; what a kernel raises meanwhile, for constants, is raised."""
        if not self._fresh and self._options not in _seen:
            try:
                self._watch(function)
            except Exception as error:
                if self.raised_by_kernel(error) or _UNREGISTERED not in str(error):
                    raise
            else:
                return
        _add_library(self._options, self._needed)
        self._watch(function)

    def raised_by_kernel(self, error: Exception) -> BaseException | None:
        """The exception of a kernel, if `create` raised that."""
        return error if error is failures.last_exception() else None

    def forget(self) -> None:
        """Let go of the nodes; the session is gone."""
        for key in self._keys:
            del _nodes[key]

    def runs_here(self) -> list[Run]:
        """The runs that a call of a kernel may belong to: this thread's, or all with kernels in ONNX Runtime's own."""
        for run in reversed(this_thread.runs):
            if run in self._active:
                return [run]
        parallel = self._active if extensions_runs.is_parallel(self._options) else ()
        return [*parallel, *extensions_runs.asynchronous]

    def check_feed(self, feed: Mapping[str, Any]) -> None:
        """Refuse strings that onnxruntime-extensions would cut off without a word, or end the process for.

        Raises
        ------
        InputError
            A string holds a NUL character, or is not UTF-8.
        """
        for name, value in feed.items() if self._has_strings else ():
            if isinstance(value, (list, np.ndarray)) and (array := np.asarray(value)).dtype.kind in "OUST":
                _check_strings(f"input {name!r}", array.flat)

    def run(self, function: Callable[[Any], Any], run_options: Any, quiet: bool) -> Any:
        """What `function` returns for run options; a kernel's exception is raised as itself.

        Parameters
        ----------
        run_options : onnxruntime.RunOptions or None
            None for options of our own, by which a run stops where a kernel fails; those of others may
            be in use by other runs.
        quiet : bool
            Whether ONNX Runtime is to print nothing.
        """
        if run_options is not None:
            return self._watch(function, run_options)
        own = onnxruntime.RunOptions()
        if quiet:
            own.log_severity_level = _FATAL

        def stop() -> None:
            own.terminate = True

        return self._watch(function, own, stop=stop)

    def _watch(self, function: Callable[..., Any], *args: Any, stop: Callable[[], None] = lambda: None) -> Any:
        hook.arm()
        run = Run(stop)
        self._active.append(run)
        try:
            return extensions_runs.watch(run, function, *args)
        finally:
            self._active.remove(run)


def _check_strings(where: str, texts: Iterable[Any]) -> None:
    for text in texts:
        try:
            decoded = text.decode() if isinstance(text, bytes) else text
        except UnicodeDecodeError as error:
            raise InputError(f"{where} holds {text!r}, which is not UTF-8 ({error}); pass str") from None
        if isinstance(decoded, str) and "\0" in decoded:
            raise InputError(
                f"{where} holds a NUL character, at which onnxruntime-extensions cuts strings off; use engine='native'"
            )


_FATAL = 4
_UNREGISTERED = "is not a registered function/op"


def _place(op: AnyOp) -> str:
    return extensions.place(extensions.choices(op.signature), _target)


def _place_all(ops: Iterable[AnyOp]) -> None:
    for op in ops:
        if not obstacles(op.signature):
            _place(op)


# By session options that hold the library by our doing: what was in its registry then.
_seen: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()


def _add_library(options: Any, needed: Set[Any]) -> None:
    """Let sessions made of `options` see what is in the registry.

    Raises
    ------
    EngineError
        `options` are none, or hold the library from a time when what is needed was not in it.
    """
    if options not in _seen:
        options.register_custom_ops_library(extensions.library().get_library_path())
        _seen[options] = extensions.domains() | _published.keys()
    elif not needed <= _seen[options]:
        raise EngineError(
            "these SessionOptions hold onnxruntime-extensions' library from before some of the ops were declared, and "
            "cannot take it twice; pass new SessionOptions"
        )


# Sessions that are not ours.

_published: dict[tuple[str, str], tuple[extensions.Published, AnyOp]] = {}
_told: weakref.WeakSet[AnyOp] = weakref.WeakSet()
_ATTRIBUTE_CODES = {AttributeKind.INT: 7, AttributeKind.STRING: 8}


def plain_obstacles(signature: Signature) -> list[str]:
    """Why an op cannot run in a session that is not ours."""
    found = [
        f"{attribute.kind.name.lower()} attribute {attribute.name!r}"
        for attribute in signature.attributes
        if attribute.kind not in _ATTRIBUTE_CODES
    ]
    if hosting.is_mistaken(signature):
        found.append(f"name {signature.name!r}, which ONNX Runtime's optimizers take for ONNX's operator")
    if signature.domain in (ONNX_DOMAIN, "com.microsoft.extensions"):
        found.append(f"domain {signature.domain!r}, which is another library's")
    return obstacles(signature) + found


def get_library_path() -> str:
    """The path of onnxruntime-extensions' library, whose registry then has the declared ops.

    For ``options.register_custom_ops_library(pyops.get_library_path())``. Of several versions of an op,
    sessions see the highest. An op that the library cannot carry is left out, with a warning that says why.
    Call this again after declaring more ops.

    Returns
    -------
    str
        As ``onnxruntime_extensions.get_library_path()``.

    Raises
    ------
    MissingDependencyError
        onnxruntime-extensions is not installed.
    EngineError
        A domain has got more ops since sessions may be using it than there is room for.
    """
    with extensions.lock:
        path: str = extensions.library().get_library_path()
        _publish(stacklevel=3)
        _place_all(registry.latest())
    return path


def register(options: Any) -> None:
    """Add the library, with the declared ops, to session options.

    Raises
    ------
    EngineError
        `options` are none, or have the library from before some op was declared.
    """
    if not isinstance(options, onnxruntime.SessionOptions):
        raise EngineError(f"expected an onnxruntime.SessionOptions, got {type(options).__qualname__}")
    with extensions.lock:
        extensions.library()
        _add_library(options, _publish(stacklevel=4))


def _publish(stacklevel: int) -> set[tuple[str, str]]:
    plugins.import_all()
    refused: dict[AnyOp, str] = {}
    shown: dict[str, dict[str, AnyOp]] = {}
    for op in registry.latest():
        reasons = plain_obstacles(op.signature)
        if reasons:
            refused[op] = refusal(op.signature, reasons)
            if (op.domain, op.name) in _published:
                _published[op.domain, op.name][0].hide(hook.add_target(functools.partial(_refuse, refused[op])))
        else:
            shown.setdefault(op.domain, {})[op.name] = op
    for domain, ops in shown.items():
        extensions.reserve(domain, sum(len(extensions.choices(op.signature)) for op in ops.values()))
        for name, op in ops.items():
            published, current = _published.get((domain, name), (extensions.Published(), None))
            if current is not op:
                codes = {attribute.name: _ATTRIBUTE_CODES[attribute.kind] for attribute in op.signature.attributes}
                target = hook.add_target(functools.partial(_compute_plain, op))
                published.show((domain, name), extensions.choices(op.signature), codes, target)
                _published[domain, name] = published, op
    untold = [line for op, line in refused.items() if op not in _told]
    _told.update(refused)
    if untold:
        warnings.warn("left out:\n" + "\n".join(f"  - {line}" for line in untold), stacklevel=stacklevel)
    return {(domain, name) for domain, ops in shown.items() for name in ops}


def _refuse(why: str, call: hook.HookCall) -> hook.Answer:
    raise EngineError(why)


def _compute_plain(op: AnyOp, call: hook.HookCall) -> hook.Answer:
    if extensions_runs.failed():
        return hook.NOTHING
    signature = op.signature
    try:
        given = {name: _attribute(signature, name, text) for name, text in call.attributes.items()}
        return answer(signature, op.compute(call.inputs, signature.convert_attributes(given)))
    except BaseException as error:
        add_note(error, describe_node("", signature, call.inputs))
        extensions_runs.fail(error)
        return hook.NOTHING


def _attribute(signature: Signature, name: str, text: str) -> Any:
    attribute = signature.attribute(name)
    return int(text) if attribute is not None and attribute.kind is AttributeKind.INT else text
