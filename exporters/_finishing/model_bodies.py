"""The bodies of a model's ops: functions of the model that say what the ops are, for runtimes without pyops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir

from pyops import Op
from pyops import _core as core
from pyops._onnx import bodies
from pyops.errors import warn

from .._lowering.node_emission import spec_of
from ..errors import ExportError
from .optimization import all_nodes


def add_bodies(model: onnx_ir.Model, is_needed: Callable[[Op[..., Any]], bool]) -> None:
    """Add to a model, for each op that it calls and that needs one, the body as a function of the op's name.

    Raises
    ------
    ExportError
        The type or rank of an input is unknown; or two calls of an op need different bodies, of which a model has one.
    DeclarationError
        As for `pyops._onnx.bodies.body`.

    Warns
    -----
    UserWarning
        An op that needs one has no decomposition.
    """
    made: dict[tuple[Any, ...], Any] = {}
    added: dict[core.Key, Any] = {}
    for node in all_nodes(model):
        op = core.find_op(node.domain, node.op_type, model.opset_imports.get(node.domain, 1))
        if op is None or not is_needed(op):
            continue
        name = op.signature.qualified_name
        if op.decomposition is None:
            warn(f"the model needs pyops for {name}, which has no decomposition to make a body of; register one")
            continue
        inputs = [spec_of(name, item, "export without bodies=True") for item in node.inputs]
        proto = onnx_ir.serde.serialize_node(node)
        values = op.signature.convert_attributes(core.read_attributes(proto, op.signature))
        call = op, *map(str, inputs), str(proto.attribute)
        if call not in made:
            made[call] = bodies.body(op.decomposition, inputs, values, model.opset_imports[""])
        if added.setdefault((op.domain, op.name), made[call]) != made[call]:
            raise ExportError(
                f"two calls of {name} need different bodies, one of them that of {', '.join(map(str, inputs))} and "
                f"{values}; a model has one body of an op: declare another op for it, or export without bodies=True"
            )
    for body in map(onnx_ir.serde.deserialize_function, added.values()):
        model.functions[body.identifier()] = body
        model.opset_imports.update(body.opset_imports | model.opset_imports)
