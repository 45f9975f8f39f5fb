"""Ops as operators of ``onnx.reference``, which evaluates models without ONNX Runtime."""

from __future__ import annotations

from typing import Any, ClassVar

import onnx
from onnx.reference.op_run import OpRun

from ..._support.builtin_operators import ONNX_DOMAIN
from ...errors import ModelError, add_note
from ..models import model, op_resolution
from ..ops import extensions_decorators, op_registry, plugins
from ..ops.node_state import States
from ..ops.op import AnyOp, Op, compute_op
from ..schema import call_validation
from ..schema.node_validation import describe_node, find_mismatch, linked_attributes, read_attributes


def reference_ops(source: model.ModelSource | None = None) -> list[type[OpRun]]:
    """Return the declared ops, for ``onnx.reference.ReferenceEvaluator(model, new_ops=pyops.reference_ops(model))``.

    The model's opset import selects the version of an op. Functions declared with onnxruntime-extensions' own
    ``onnx_op`` are included.

    Parameters
    ----------
    source : str, os.PathLike, bytes, onnx.ModelProto or torch.onnx.ONNXProgram, optional
        The model. Installed plug-ins that it needs are imported; without a model, all of them are.

    Returns
    -------
    list of onnx.reference.op_run.OpRun subclasses
        One per domain and name. Evaluating a node raises the kernel's exception, with a note that names the
        node and its inputs. Creating the evaluator raises `ModelError` if a node does not match its op's
        declaration.

    Raises
    ------
    FileNotFoundError
        The model file does not exist.
    ModelError
        `source` is of another type, or a protobuf too large to be serialized.
    PluginError
        A plug-in that the model needs is broken.

    Examples
    --------
    >>> import numpy as np, onnx, pyops
    >>> from numpy.typing import NDArray
    >>> from onnx.reference import ReferenceEvaluator
    >>> @pyops.onnx_op("evaluator::Twice")
    ... def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x + x
    >>> model = onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20, "evaluator": 1]>
    ... main (float[n] x) => (float[n] y) { y = evaluator.Twice(x) }''')
    >>> evaluator = ReferenceEvaluator(model, new_ops=pyops.reference_ops(model))
    >>> evaluator.run(None, {"x": np.array([1.5], np.float32)})
    [array([3.], dtype=float32)]
    """
    if source is None:
        plugins.import_all_plugins()
    else:
        op_resolution.import_plugins_of(model.load_model(source))
    found = {key: {op.version: op} for key, op in extensions_decorators.adopted_ops().items() if isinstance(op, Op)}
    return [_node_class(*key, versions) for key, versions in (found | op_registry.all_op_versions()).items()]


def _node_class(domain: str, name: str, versions: dict[int, AnyOp]) -> type[OpRun]:
    members = {"op_domain": "" if domain == ONNX_DOMAIN else domain, "versions": versions, "__module__": __name__}
    return type(name, (ReferenceNode,), members)


class ReferenceNode(OpRun):
    """Base class of the generated operators; each op gets a subclass with the op's name."""

    versions: ClassVar[dict[int, AnyOp]]

    def __init__(self, onnx_node: onnx.NodeProto, run_params: dict[str, Any], schema: Any = None) -> None:
        opset = run_params["opsets"][onnx_node.domain]
        op = op_registry.choose(self.versions, opset)
        if op is None:
            raise ModelError(op_resolution.describe_missing(onnx_node.domain or ONNX_DOMAIN, onnx_node.op_type, opset))
        if problem := find_mismatch(onnx_node, op.signature):
            raise ModelError(f"the model and the declared ops disagree: {problem}")
        # OpRun turns every attribute of the node and of its schema into an instance attribute, which may collide with
        # its own.
        bare = onnx.NodeProto()
        bare.CopyFrom(onnx_node)
        bare.ClearField("attribute")
        super().__init__(bare, run_params, onnx.defs.OpSchema(op.name, op.domain, op.version))
        self.onnx_node = onnx_node
        self.has_linked_attribute = bool(linked_attributes(onnx_node))
        self._op = op
        self._states = States()
        if op.signature.takes_state and not self.has_linked_attribute:
            try:
                self._states(op, op.signature.convert_attributes(self._attributes({})))
            except BaseException as error:  # interrupts get the note, too
                add_note(error, describe_node(onnx_node.name, op.signature))
                raise

    def run(self, *args: Any, linked_attributes: Any = None, context: Any = None, bindings: Any = None) -> Any:
        """Compute the node and return its outputs, with None for unnamed ones.

        Parameters
        ----------
        *args : numpy.ndarray
            The node's inputs.
        linked_attributes : dict, optional
            Attribute values of the model function that contains the node.
        context, bindings
            Unused; only ONNX's own operators need them.
        """
        # OpRun.run would replace a TypeError or AttributeError of the kernel with its own.
        return self._run(*args, linked=linked_attributes or {})

    def _run(self, *args: Any, linked: dict[str, Any]) -> tuple[Any, ...]:
        # The evaluator stores an unnamed output under the empty name, which also stands for absent inputs.
        arrays = [value if name else None for name, value in zip(self.onnx_node.input, args, strict=True)]
        while arrays and arrays[-1] is None:
            arrays.pop()
        signature, count = self._op.signature, len(self.onnx_node.output)
        try:
            given, attributes = call_validation.split_arguments(signature, arrays, self._attributes(linked))
            outputs = compute_op(self._op, given, attributes, state=self._states)
            if len(outputs) != max(count, len(signature.outputs) - signature.outputs[-1].variadic):
                raise call_validation.output_count_error(signature, outputs, count)
        except BaseException as error:  # interrupts get the note, too
            add_note(error, describe_node(self.onnx_node.name, signature, arrays))
            raise
        return tuple(value if name else None for name, value in zip(self.onnx_node.output, outputs, strict=False))

    def _attributes(self, linked: dict[str, Any]) -> dict[str, Any]:
        values = read_attributes(self.onnx_node, self._op.signature)
        for name, source in linked_attributes(self.onnx_node).items():
            # An attribute that the function's caller omits is absent here.
            if linked.get(source) is not None and not self._op.signature.ignores(name):
                values[name] = linked[source]
        return values
