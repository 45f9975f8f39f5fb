"""Hosting of ops through onnxruntime-extensions in a `pyops.InferenceSession`.

The model is rewritten: each node of an op becomes a node of an operator with the right types, and two string attributes
hold the keys of its session and its own. The node's name, op and attributes are looked up by them, so that attributes
that onnxruntime-extensions does not support work too.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from onnx import helper

from .. import Op
from .. import _core as core
from .._support.builtin_operators import ONNX_DOMAIN
from .._support.element_types import STRING
from ..errors import EngineError, InputError, OutputError, PyopsError, add_note
from . import call_hook, operator_registry


class Node(NamedTuple):
    """A node that an op computes.

    Attributes
    ----------
    attributes : mapping or None
        None in sessions other than pyops', where they come with each call, as texts.
    clock : NodeProfile or None
        What times the kernel.
    """

    name: str
    op: core.AnyOp
    attributes: Mapping[str, Any] | None
    clock: Any = None

    def compute(self, call: call_hook.HookCall) -> call_hook.Answer:
        """Return the outputs of the node's op, in the form that onnxruntime-extensions expects."""
        signature, attributes = self.op.signature, self.attributes
        try:
            if attributes is None:
                attributes = {a.name: _PARSERS[a.kind](call.attributes[a.name]) for a in signature.attributes}
            result: list[Any] = [0]
            wrap = None if self.clock is None else self.clock.timed
            outputs = core.compute_op(self.op, call.inputs, signature.convert_attributes(attributes), wrap=wrap)
            for item, array in zip(signature.outputs, outputs, strict=True):
                flat: Any = array.ravel()
                if array.dtype is STRING:
                    flat = [_utf8(f"{signature.qualified_name}: {item.name!r}", text, OutputError) for text in flat]
                result += [array.shape, flat]
            return tuple(result).__iter__
        except BaseException as error:
            add_note(error, core.describe_node(self.name, signature, call.inputs))
            raise

    def timed(self, clock: Any) -> Callable[[call_hook.HookCall], call_hook.Answer]:
        """Return a function that computes and times the node."""
        return functools.partial(clock.call, self._replace(clock=clock).compute)


_PARSERS: dict[core.AttributeKind, Callable[[str], Any]] = {core.AttributeKind.INT: int, core.AttributeKind.STRING: str}


def _utf8(what: str, text: str | bytes, error: type[PyopsError]) -> bytes:
    """Return a string as UTF-8; raise for one that onnxruntime-extensions cuts off, or ends the process for."""
    with contextlib.suppress(UnicodeDecodeError):
        data = text if isinstance(text, bytes) else text.encode()
        if "\0" not in data.decode():
            return data
    raise error(f"{what} contains {text!r}, which has a NUL character or is not UTF-8; use engine='native'")


def latest_ops() -> list[core.AnyOp]:
    """Return the highest version of every declared op."""
    return [max(versions.values(), key=lambda op: op.version) for versions in core.all_op_versions().values()]


def register_all() -> None:
    """Register all ops that the engine supports, for sessions whose options get the library from now on."""
    for op in (*latest_ops(), *core.adopted_ops().values()):
        if isinstance(op, Op) and not operator_registry.reason_against(op.signature):
            operator_registry.hosting_domain(op.signature)


class SessionHost:
    """The extensions engine's part of one `pyops.InferenceSession`.

    It has the interface of `pyops._core.runtime.native.op_registration.SessionHost`.

    Parameters
    ----------
    fresh : bool
        Whether nobody else uses the options. Other options may have the library already, and it cannot be registered
        twice; and later sessions with these options may need other ops.

    Raises
    ------
    EngineError
        The engine does not support an op, a model in ORT format or of an old opset, or the parallel execution mode.
    """

    def __init__(
        self, options: Any, source: core.Model, ops: Mapping[tuple[str, str], core.AnyOp], fresh: bool
    ) -> None:
        if source.is_ort:
            raise EngineError("the extensions engine cannot host ops in a model in ORT format; use engine='native'")
        if options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL:
            raise EngineError(
                "the extensions engine cannot tell which run a kernel call in ONNX Runtime's own threads belongs to; "
                "set execution_mode to ORT_SEQUENTIAL, or use engine='native'"
            )
        refused = [line for op in ops.values() if (line := operator_registry.reason_against(op.signature))]
        if refused:
            lines = "\n".join(f"  - {line}" for line in refused)
            raise EngineError(f"the extensions engine cannot host the model's ops:\n{lines}")
        nodes: call_hook.Nodes = {}
        self.nodes = core.SessionNodes(nodes, nodes)
        with operator_registry.lock:
            call_hook.library()
            hosts = {
                key: core.Host(operator_registry.hosting_domain(op.signature), str(op.signature), op)
                for key, op in ops.items()
            }
            if not fresh:
                register_all()
        self._fresh, self._options, self._domains = fresh, options, {host.domain for host in hosts.values()}
        self.model = source.hosted(hosts)
        if self.model is not source:
            hosted = {(host.domain, host.name): host.op for host in hosts.values()}
            _rewrite(self.model, hosted, call_hook.add_session(self, nodes), nodes)

    def create(self, function: Callable[[], None]) -> None:
        """Call `function`, which creates the session; raise what a kernel raises during constant folding."""
        if not self._fresh and not call_hook.has_library(self._options):
            try:  # whether the user has registered the library
                return call_hook.watch(function)
            except Exception as error:  # ONNX Runtime raises several unrelated types
                if "is not a registered function/op" not in str(error):
                    raise
        call_hook.add_library(self._options, self._domains)
        return call_hook.watch(function)


def check_input(name: str, value: Any) -> None:
    """Raise an `InputError` if a value has a string that onnxruntime-extensions does not support."""
    if isinstance(value, (str, bytes)):
        _utf8(f"input {name!r}", value, InputError)
    elif isinstance(value, list):
        for item in value:
            check_input(name, item)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "OUST":
        check_input(name, value.tolist())


def _rewrite(
    model: core.Model, ops: Mapping[tuple[str, str], core.AnyOp], session: str, nodes: call_hook.Nodes
) -> None:
    """Make the nodes of these ops nodes of `HOST_OP_TYPE`; add what computes them to `nodes`."""
    for container, imports in model.containers():
        opset = [entry.version for entry in imports if core.full_domain(entry.domain) == ONNX_DOMAIN]
        if not opset:
            imports.add(domain="", version=_SEQUENCES)
        elif opset[0] < _SEQUENCES:
            raise EngineError(
                f"the extensions engine needs a model of ONNX opset {_SEQUENCES} or later, and this one imports opset "
                f"{opset[0]}; convert it (onnx.version_converter.convert_version), or use engine='native'"
            )
        for graph in core.graphs(container):
            declared = {getattr(item, "name", item) for item in (*graph.value_info, *graph.output)}
            for node in list(graph.node):
                if op := ops.get((node.domain, node.op_type)):
                    graph.node.extend(_host(node, op, session, nodes, declared))
    model.source = model.serialized()


_SEQUENCES = 11  # the first ONNX opset with sequences
_numbers = itertools.count(1)


def _host(node: Any, op: core.AnyOp, session: str, nodes: call_hook.Nodes, declared: set[str]) -> list[Any]:
    """Give a node keys in place of its attributes, and all its outputs; return nodes that copy declared ones."""
    if any(map(op.signature.attribute, core.linked_attributes(node))):
        raise EngineError(
            f"{core.describe_node(node.name, op.signature)}: the extensions engine cannot give a kernel the attributes "
            "of the function that its node is in; use engine='native', or inline the model's functions first "
            "(onnx.inliner.inline_local_functions)"
        )
    key = str(next(_numbers))
    nodes[key] = Node(node.name, op, core.read_attributes(node, op.signature)).compute
    names = [*node.output, *[""] * (len(op.signature.outputs) - len(node.output))]
    outputs = [f"_pyops_{key}_{i}" if name in {"", *declared} else name for i, name in enumerate(names)]
    copies = [_copy(output, name) for output, name in zip(outputs, names, strict=True) if name in declared]
    node.op_type = operator_registry.HOST_OP_TYPE
    node.output[:] = outputs
    del node.attribute[:]
    for name, value in ((operator_registry.SESSION, session), (operator_registry.NODE, key)):
        node.attribute.append(helper.make_attribute(name, value))
    return list(itertools.chain(*copies))


# ONNX Runtime preallocates values whose shape it knows, or that the caller bound; if a kernel's output does not fit,
# onnxruntime-extensions ends the process. So no output of our nodes has a known shape: ONNX Runtime's own sequence
# operators, which its optimizers leave alone, copy those that the model declares.
def _copy(name: str, to: str) -> list[Any]:
    first, values = f"{name}_first", f"{name}_values"
    return [
        helper.make_node("Constant", [], [first], value=helper.make_tensor(first, 7, [], [0])),
        helper.make_node("SequenceConstruct", [name], [values]),
        helper.make_node("SequenceAt", [values, first], [to]),
    ]
