"""Hosts ops through onnxruntime-extensions in a session of pyops, where ONNX Runtime's C API cannot be used.

The model is rewritten: a node goes to an operator that has the right types, and a string attribute tells
which node it is. Name, attributes and op are looked up by it, so that those that onnxruntime-extensions cannot
hand on are there all the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnxruntime

from ..._models.hosting import Host
from ..._models.model import Model
from ..._ops.builtin import ONNX_DOMAIN
from ..._ops.op import AnyOp
from ..._ops.op import compute as compute_op
from ..._schema.dtypes import STRING
from ..._schema.node import add_note, describe_node, read_attributes
from ...errors import EngineError, InputError, OutputError
from ..calls import exceptions
from ..calls.timing import NodeClock, Nodes, TimedNode, TimedOp
from . import hook, registry
from .registry import PLACE_TYPE as PLACE_TYPE

R = TypeVar("R")


class _Node(NamedTuple):
    """A node of a session of ours."""

    name: str
    op: AnyOp
    attributes: Mapping[str, Any]

    def compute(self, call: hook.HookCall) -> hook.Answer:
        """Return the outputs of its op, or `hook.NOTHING` where its run has failed, or now fails."""
        if hook.has_failed():
            return hook.NOTHING
        try:
            return answer(self.op, call, self.attributes)
        except BaseException as error:  # which would end the process
            add_note(error, describe_node(self.name, self.op.signature, call.inputs))
            hook.fail(error)
            return hook.NOTHING

    def timed(self, clock: NodeClock) -> TimedNode:
        """Return what is called in its place while its calls are timed."""
        return TimedNode(self._replace(op=TimedOp(self.op, clock)), clock)


def answer(op: AnyOp, call: hook.HookCall, attributes: Mapping[str, Any]) -> hook.Answer:
    """Compute an op, and return its outputs as onnxruntime-extensions takes them."""
    signature = op.signature
    result: list[Any] = [0]
    outputs = compute_op(op, call.inputs, signature.convert_attributes(attributes))
    for item, array in zip(signature.outputs, outputs, strict=True):
        if array.dtype is not STRING:
            result += [array.shape, array.reshape(-1) if array.flags.c_contiguous else array.flatten()]
            continue
        texts = [text.encode() for text in array.flat]
        if any(b"\0" in text for text in texts):
            raise OutputError(
                f"{signature.qualified_name}: {item.name!r} holds a NUL character, at which onnxruntime-extensions "
                "cuts strings off; the native engine carries it"
            )
        result += [array.shape, texts]
    return tuple(result).__iter__


_computes: dict[str, hook.Target] = {}
_numbers = itertools.count(1)


def _compute(call: hook.HookCall) -> hook.Answer:
    return _computes[call.attributes[registry.NODE]](call)


_target = hook.add_target(_compute)


def place_all(ops: Iterable[AnyOp]) -> None:
    """Let sessions of options that get the library from now on host these ops, as far as it supports them."""
    for op in ops:
        if not registry.obstacles(op.signature):
            registry.place(registry.choices(op.signature), _target)


class SessionHost:
    """What one `pyops.InferenceSession` has from this engine, as `pyops._runtime.native.session.SessionHost`.

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
        An op cannot be hosted here, nor a model in ORT format, nor the parallel execution mode.
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
        if options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL:
            raise EngineError(
                "the extensions engine cannot tell to which run a kernel belongs in threads of ONNX Runtime's own; "
                "leave execution_mode ORT_SEQUENTIAL, or use engine='native'"
            )
        found = {op.signature: registry.obstacles(op.signature) for op in ops.values()}
        refused = [registry.refusal(signature, reasons) for signature, reasons in found.items() if reasons]
        if refused:
            lines = "\n".join(f"  - {line}" for line in refused)
            raise EngineError(f"the extensions engine cannot host the model's ops:\n{lines}")
        self._keys: list[str] = []
        self.nodes = Nodes(_computes, self._keys)
        with registry.lock:
            hook.library()
            places = {key: registry.place(registry.choices(op.signature), _target) for key, op in ops.items()}
            if not fresh:
                place_all(declared)
        self._fresh, self._options = fresh, options
        hosts = {key: Host(place, PLACE_TYPE, ops[key]) for key, place in places.items()}
        self.model = source.inlined(hosts).hosted(hosts, self._mark)
        if hosts:
            _forget_shapes(self.model, set(places.values()))
        types = [parameter for op in ops.values() for parameter in op.signature.type_parameters]
        self._has_strings = any(STRING in parameter.dtypes for parameter in types)
        for name, tensor in source.constants() if self._has_strings else ():
            _check_strings(f"constant {name!r}", tensor.string_data)

    def _mark(self, node: Any, op: AnyOp) -> None:
        key = str(next(_numbers))
        _computes[key] = _Node(node.name, op, read_attributes(node, op.signature)).compute
        self._keys.append(key)
        node.ClearField("attribute")
        node.attribute.add(name=registry.NODE, type=3, s=key.encode())
        names = [*node.output, *[""] * (len(op.signature.outputs) - len(node.output))]
        node.ClearField("output")
        node.output.extend(name or f"_pyops_{key}_{index}" for index, name in enumerate(names))

    def create(self, function: Callable[[], None]) -> None:
        """Create the session by `function`; what a kernel raises meanwhile, for constants, is raised."""
        holds = hook.has_library(self._options)
        if holds or not self._fresh:
            try:
                return hook.watch(function)
            except Exception as error:  # ONNX Runtime's, of whatever type
                lacks_ops = "is not a registered function/op" in str(error) and (not holds or _PLACES in str(error))
                if self.raised_by_kernel(error) is not None or not lacks_ops:
                    raise
        hook.add_library(self._options, registry.size())
        return hook.watch(function)

    def raised_by_kernel(self, error: Exception) -> BaseException | None:
        """Return the exception of a kernel, if `create` raised that."""
        return error if error is exceptions.last_exception() else None

    def run(self, function: Callable[[Any], R], run_options: Any, quiet: bool) -> R:
        """Call ``function(run_options)``, which runs the session, and raise what a kernel raises in it.

        Without options, ONNX Runtime stops where a kernel fails, and prints nothing where `quiet`.
        """
        own = None if run_options else onnxruntime.RunOptions()
        if own and quiet:
            own.log_severity_level = _FATAL
        return hook.watch(lambda: function(own or run_options), own)

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


# ONNX Runtime has memory ready for a value whose shape it knows, or that the caller bound, and where a kernel's output
# does not fit in, onnxruntime-extensions ends the process. So no output of ours has a known shape, and what leaves a
# graph is copied to its place by ONNX Runtime's own operators, which its optimizers leave alone.
def _forget_shapes(model: Model, domains: Set[str]) -> None:
    proto: Any = model.proto
    for root, imports in [(item, item.opset_import) for item in proto.functions] + [(proto.graph, proto.opset_import)]:
        opset = [item.version for item in imports if item.domain in ("", ONNX_DOMAIN)]
        if not opset:
            imports.add(domain="", version=_SEQUENCES)
        elif opset[0] < _SEQUENCES:
            continue
        for graph in _graphs(root):
            ours = [node for node in graph.node if node.domain in domains]
            names = {name for node in ours for name in node.output}
            others = [info for info in graph.value_info if info.name not in names]
            del graph.value_info[:]
            graph.value_info.extend(others)
            leaving = names.intersection(getattr(output, "name", output) for output in graph.output)
            for node in ours:
                for index, name in enumerate(node.output):
                    if name in leaving:
                        node.output[index] = inner = f"_pyops_inner_{name}"
                        graph.node.extend(_copy(inner, to=name))
    model.source = proto.SerializeToString()


_SEQUENCES = 11  # the first ONNX opset with sequences


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _copy(name: str, to: str) -> list[Any]:
    from onnx import helper, numpy_helper

    first, values = f"{name}_first", f"{name}_values"
    return [
        helper.make_node("Constant", [], [first], value=numpy_helper.from_array(np.array(0))),
        helper.make_node("SequenceConstruct", [name], [values]),
        helper.make_node("SequenceAt", [values, first], [to]),
    ]


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
_PLACES = "pyops.extensions"
