"""Hosting of ops through onnxruntime-extensions in a `pyops.InferenceSession`.

The model is rewritten: each node of an op becomes a node of an operator with the right types, and a string attribute
holds its key. The node's name, op and attributes are looked up by that key, so that attributes that
onnxruntime-extensions does not support work too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnxruntime

from ..._models.model import Host, Model
from ..._ops.builtin import ONNX_DOMAIN
from ..._ops.op import AnyOp
from ..._ops.op import compute as compute_op
from ..._schema.dtypes import STRING
from ..._schema.node import add_note, describe_node, linked_attributes, read_attributes
from ...errors import EngineError, InputError, OutputError
from ..calls.timing import NodeProfile, Nodes, TimedOp
from . import hook, registry
from .registry import HOST_OP_TYPE as HOST_OP_TYPE

R = TypeVar("R")


class _Node(NamedTuple):
    """A node of a pyops session."""

    name: str
    op: AnyOp
    attributes: Mapping[str, Any]

    def compute(self, call: hook.HookCall) -> hook.Answer:
        """Return the outputs of the node's op, or `hook.NOTHING` if its run has failed or fails now."""
        if hook.has_failed():
            return hook.NOTHING
        try:
            return answer(self.op, call, self.attributes)
        except BaseException as error:  # leaving the hook, it would end the process
            add_note(error, describe_node(self.name, self.op.signature, call.inputs))
            hook.fail(error)
            return hook.NOTHING

    def timed(self, clock: NodeProfile) -> Callable[[hook.HookCall], hook.Answer]:
        """Return a function that computes and times the node."""
        return functools.partial(clock.call, self._replace(op=TimedOp(self.op, clock)).compute)


def answer(op: AnyOp, call: hook.HookCall, attributes: Mapping[str, Any]) -> hook.Answer:
    """Compute an op; return its outputs in the form that onnxruntime-extensions expects."""
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
                f"{signature.qualified_name}: {item.name!r} contains a NUL character, where onnxruntime-extensions "
                "cuts strings off; return none, or use engine='native', which supports it"
            )
        result += [array.shape, texts]
    return tuple(result).__iter__


_computes: dict[str, hook.Target] = {}
_numbers = itertools.count(1)


def _compute(call: hook.HookCall) -> hook.Answer:
    return _computes[call.attributes[registry.NODE]](call)


_target = hook.add_target(_compute)


def register_all(ops: Iterable[AnyOp]) -> None:
    """Register these ops, where supported, for sessions whose options get the library from now on."""
    for op in ops:
        if not registry.reasons_against(op.signature):
            registry.hosting_domain(registry.choices(op.signature), _target)


class SessionHost:
    """The extensions engine's part of one `pyops.InferenceSession`.

    It has the interface of `pyops._runtime.native.session.SessionHost`.

    Parameters
    ----------
    declared : iterable of Op
        All ops that a later session with these options may need.
    fresh : bool
        Whether nobody else uses the options. Other options may have the library already, and
        it cannot be registered twice.

    Raises
    ------
    EngineError
        The engine does not support an op, a model in ORT format, or the parallel execution mode.
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
                "the extensions engine cannot tell which run a kernel call in ONNX Runtime's own threads belongs to; "
                "set execution_mode to ORT_SEQUENTIAL, or use engine='native'"
            )
        found = {op.signature: registry.reasons_against(op.signature) for op in ops.values()}
        refused = [registry.describe_reasons(signature, reasons) for signature, reasons in found.items() if reasons]
        if refused:
            lines = "\n".join(f"  - {line}" for line in refused)
            raise EngineError(f"the extensions engine cannot host the model's ops:\n{lines}")
        self._keys: list[str] = []
        self.nodes = Nodes(_computes, self._keys)
        with registry.lock:
            hook.library()
            domains = {key: registry.hosting_domain(registry.choices(op.signature), _target) for key, op in ops.items()}
            if not fresh:
                register_all(declared)
        self._fresh, self._options = fresh, options
        hosts = {key: Host(domain, HOST_OP_TYPE, ops[key]) for key, domain in domains.items()}
        self.model = source.hosted(hosts, self._mark)
        if hosts:
            _forget_shapes(self.model, set(domains.values()))
        types = [parameter for op in ops.values() for parameter in op.signature.type_parameters]
        self._has_strings = any(STRING in parameter.dtypes for parameter in types)

    def _mark(self, node: Any, op: AnyOp) -> None:
        if any(map(op.signature.attribute, linked_attributes(node))):
            raise EngineError(
                f"{describe_node(node.name, op.signature)}: the extensions engine cannot give a kernel the attributes "
                "of the function that its node is in; use engine='native', or inline the model's functions first "
                "(onnx.inliner.inline_local_functions)"
            )
        key = str(next(_numbers))
        _computes[key] = _Node(node.name, op, read_attributes(node, op.signature)).compute
        self._keys.append(key)
        node.ClearField("attribute")
        node.attribute.add(name=registry.NODE, type=3, s=key.encode())
        names = [*node.output, *[""] * (len(op.signature.outputs) - len(node.output))]
        node.ClearField("output")
        node.output.extend(name or f"_pyops_{key}_{index}" for index, name in enumerate(names))

    def create(self, function: Callable[[], None]) -> None:
        """Call `function`, which creates the session; raise what a kernel raises during constant folding."""
        holds = hook.has_library(self._options)
        if holds or not self._fresh:
            try:
                return hook.watch(function)
            except Exception as error:  # ONNX Runtime raises several unrelated types
                lacks_ops = "is not a registered function/op" in str(error) and (
                    not holds or _HOSTING_DOMAINS in str(error)
                )
                if not lacks_ops:
                    raise
        hook.add_library(self._options, registry.size())
        return hook.watch(function)

    def run(self, function: Callable[[Any], R], run_options: Any, quiet: bool) -> R:
        """Return ``function(run_options)``, which runs the session; raise what a kernel raises in it.

        With `run_options` None, the run is terminated when a kernel fails, and with `quiet` ONNX Runtime prints
        nothing.
        """
        own = None if run_options else onnxruntime.RunOptions()
        if own and quiet:
            own.log_severity_level = _FATAL
        return hook.watch(lambda: function(own or run_options), own)

    def forget(self) -> None:
        """Remove the nodes from the lookup table; the session no longer exists."""
        for key in self._keys:
            del _computes[key]

    def check_feed(self, feed: Mapping[str, Any]) -> None:
        """Raise an error for strings that onnxruntime-extensions does not support.

        It would silently cut them off, or end the process.

        Raises
        ------
        InputError
            A string contains a NUL character, or is not UTF-8.
        """
        for name, value in feed.items() if self._has_strings else ():
            if isinstance(value, (list, np.ndarray)) and (array := np.asarray(value)).dtype.kind in "OUST":
                for text in array.flat:
                    _check_string(name, text)


# ONNX Runtime preallocates values whose shape it knows, or that the caller bound; if a kernel's output does not fit,
# onnxruntime-extensions ends the process. So no output of our nodes has a known shape, and graph outputs are copied by
# ONNX Runtime's own sequence operators, which its optimizers leave alone.
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
    model.source = model.serialized()


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


def _check_string(name: str, text: Any) -> None:
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise InputError(f"input {name!r} contains {text!r}, which is not UTF-8 ({error}); pass str") from None
    if isinstance(decoded, str) and "\0" in decoded:
        raise InputError(
            f"input {name!r} contains a NUL character, where onnxruntime-extensions cuts strings off; use "
            "engine='native'"
        )


_FATAL = 4
_HOSTING_DOMAINS = "pyops.extensions"
