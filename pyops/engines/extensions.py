"""Hosts an Op through onnxruntime-extensions' ``PyCustomOpDef``, where ONNX Runtime's C API cannot be used.

In a session of pyops the model is rewritten: a node goes to an operator that has the right types, and
a string attribute tells which node it is. Name, attributes and op are looked up by it, so that those
that onnxruntime-extensions cannot hand on are there all the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .. import failures
from ..errors import EngineError, InputError
from ..hosting import Host
from ..model import Model
from ..node import read_attributes
from ..op import AnyOp
from ..types import STRING
from . import extensions_hook as hook
from . import extensions_registry, extensions_runs
from .extensions_call import compute
from .extensions_carried import obstacles, refusal
from .extensions_library import add_library, has_library, library
from .extensions_registry import PLACE_TYPE as PLACE_TYPE
from .timing import NodeClock, Nodes, TimedNode, TimedOp


class _Node(NamedTuple):
    """A node of a session of ours."""

    host: SessionHost
    name: str
    op: AnyOp
    attributes: Mapping[str, Any]

    def compute(self, call: hook.HookCall) -> hook.Answer:
        """The outputs of its op."""
        return compute(self.op, call, self.attributes, self.name, self.host)

    def timed(self, clock: NodeClock) -> TimedNode:
        """What is called in its place while its calls are timed."""
        return TimedNode(self._replace(op=TimedOp(self.op, clock)), clock)


_computes: dict[str, hook.Target] = {}
_numbers = itertools.count(1)


def _compute(call: hook.HookCall) -> hook.Answer:
    return _computes[call.attributes[extensions_registry.NODE]](call)


_target = hook.add_target(_compute)


class SessionHost:
    """What one `pyops.InferenceSession` has from this engine, as `pyops.engines.native.SessionHost`.

    Parameters
    ----------
    declared : iterable of Op
        Those that a later session of these options may need.
    fresh : bool
        Whether the options are new, and for one session alone. Others may hold the library already, which
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
        self._keys: list[str] = []
        self.nodes = Nodes(_computes, self._keys)
        with extensions_registry.lock:
            library()
            hosts = {key: Host(_place(op), PLACE_TYPE, op) for key, op in ops.items()}
            if not fresh:
                place_all(declared)
        self._fresh = fresh
        self._options, self._needed = options, {host.domain for host in hosts.values()}
        self.model = source.inlined(hosts).hosted(hosts, self._mark)
        types = [parameter for op in ops.values() for parameter in op.signature.type_parameters]
        self._has_strings = any(STRING in parameter.dtypes for parameter in types)
        for name, tensor in source.constants() if self._has_strings else ():
            _check_strings(f"constant {name!r}", tensor.string_data)

    def _mark(self, node: Any, op: AnyOp) -> None:
        key = str(next(_numbers))
        _computes[key] = _Node(self, node.name, op, read_attributes(node, op.signature)).compute
        self._keys.append(key)
        node.ClearField("attribute")
        node.attribute.add(name=extensions_registry.NODE, type=3, s=key.encode())
        names = [*node.output, *[""] * (len(op.signature.outputs) - len(node.output))]
        node.ClearField("output")
        node.output.extend(name or f"_pyops_{key}_{index}" for index, name in enumerate(names))

    def create(self, function: Callable[[], None]) -> None:
        """Create the session by `function`; what a kernel raises meanwhile, for constants, is raised."""
        if not self._fresh and not has_library(self._options):
            try:
                function()
            except Exception as error:  # ONNX Runtime's, of whatever type
                if self.raised_by_kernel(error) is not None or _UNREGISTERED not in str(error):
                    raise
            else:
                return
        add_library(self._options, self._needed)
        function()

    def raised_by_kernel(self, error: Exception) -> BaseException | None:
        """Return the exception of a kernel, if `create` raised that."""
        return error if error is failures.last_exception() else None

    def forget(self) -> None:
        """Let go of the nodes; the session is gone."""
        for key in self._keys:
            del _computes[key]

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


def run_options(quiet: bool) -> extensions_runs.StoppingOptions:
    """Options for one run, by which it stops where a kernel fails, and ONNX Runtime prints nothing where `quiet`."""
    options = extensions_runs.StoppingOptions()
    if quiet:
        options.log_severity_level = _FATAL
    return options


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
    return extensions_registry.place(extensions_registry.choices(op.signature), _target)


def place_all(ops: Iterable[AnyOp]) -> None:
    """Let sessions of options that get the library now host these ops later, as far as it can carry them."""
    for op in ops:
        if not obstacles(op.signature):
            _place(op)
