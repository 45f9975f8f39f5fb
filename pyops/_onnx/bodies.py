"""Bodies: an op's decomposition as a function of ONNX, and the evaluation of a decomposition as a reference."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoints, entry_points
from typing import Any

import onnx
import onnx.inliner
from onnx.reference import ReferenceEvaluator

from .._core import Decomposition, graphs
from ..errors import DeclarationError, MissingDependencyError, ShapeInferenceError
from ..shapes import TensorSpec
from .op_schemas import attribute_proto, spec_of, tensor_type
from .operator_versions import means_the_same

Specs = Sequence[TensorSpec | None]
"""One spec per input of a call, None for an absent one."""


def body(decomposition: Decomposition, inputs: Specs, attributes: Mapping[str, Any], opset: int) -> onnx.FunctionProto:
    """Return the function of ONNX that computes a call of an op, and calls that differ from it in sizes and types.

    Parameters
    ----------
    attributes : mapping
        As returned by `Signature.convert_attributes`.
    opset : int
        The version of ONNX's own domain that the model imports.

    Returns
    -------
    onnx.FunctionProto
        A function of the op's domain and name.

    Raises
    ------
    DeclarationError
        The decomposition cannot be exported as a function, with the op's types, or at this opset version.
    MissingDependencyError
        It is written in torch, and torch or onnxscript is not installed.
    """
    signature = decomposition.signature
    make = _onnxscript_body if decomposition.is_onnxscript else _torch(decomposition).body
    function: onnx.FunctionProto = make(decomposition, inputs, attributes, opset)
    function.domain, function.name = signature.domain, signature.name
    del function.attribute[:], function.attribute_proto[:]
    for item in signature.attributes:
        if item.default is not None:
            function.attribute_proto.append(attribute_proto(item, item.default))
        elif attributes[item.name] is not None:
            function.attribute.append(item.name)
    return function


def calls_model(
    decomposition: Decomposition, calls: Sequence[tuple[Specs, Mapping[str, Any]]], opset: int, plain: bool = False
) -> onnx.ModelProto | None:
    """Return a model of calls of a decomposition, in which the sizes of inputs that are numbers are fixed.

    Parameters
    ----------
    calls : sequence of (specs, attributes)
        Each has inputs and outputs of its own in the model, in this order.
    plain : bool
        Write it as torch's own exporter does; return None if that fails, or if there is only one way to write it.

    Raises
    ------
    DeclarationError, MissingDependencyError
        As for `body`.
    """
    if not decomposition.is_onnxscript:
        found: onnx.ModelProto | None = _torch(decomposition).calls_model(decomposition, calls, opset, plain)
        return found
    if plain:
        return None
    graph, signature = onnx.GraphProto(name="calls"), decomposition.signature
    for index, (inputs, attributes) in enumerate(calls):
        function = body(decomposition, inputs, attributes, opset)
        types = dict(zip((f"{name}_{index}" for name in function.input), _types(inputs), strict=True))
        outputs = [f"{name}_{index}" for name in function.output]
        node = graph.node.add(op_type=signature.name, domain=signature.domain, input=types, output=outputs)
        node.attribute.extend(_attribute_protos(decomposition, attributes))
        graph.input.extend(onnx.ValueInfoProto(name=name, type=type) for name, type in types.items())
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    imports = [*function.opset_import, onnx.helper.make_opsetid(signature.domain, 1)]
    model = onnx.helper.make_model(graph, functions=[function], opset_imports=imports)
    return onnx.inliner.inline_local_functions(model)


def _attribute_protos(decomposition: Decomposition, attributes: Mapping[str, Any]) -> list[onnx.AttributeProto]:
    declared = decomposition.signature.attributes
    return [attribute_proto(item, attributes[item.name]) for item in declared if attributes[item.name] is not None]


def _types(inputs: Specs) -> list[onnx.TypeProto]:
    return [onnx.TypeProto() if spec is None else tensor_type(spec.dtype, spec.shape) for spec in inputs]


def infer_shapes(decomposition: Decomposition, *inputs: TensorSpec | None, **attributes: Any) -> Any:
    """Infer the specs of the outputs as a shape function does, from a body that is made for this call.

    Raises
    ------
    ShapeInferenceError
        onnx does not know the rank of an output.
    DeclarationError, MissingDependencyError
        As for `body`.
    """
    function = body(decomposition, inputs, attributes, onnx.defs.onnx_opset_version())
    signature = decomposition.signature
    protos = _attribute_protos(decomposition, attributes)
    inferred = onnx.shape_inference.infer_function_output_types(function, _types(inputs), protos)
    found = [item.tensor_type for item in inferred]
    if not all(item.HasField("shape") for item in found):
        raise ShapeInferenceError(
            f"onnx infers no rank of an output from {decomposition.name}; register a shape function with "
            "register_shape_inference"
        )
    specs = tuple(spec_of(item) for item in found)
    return specs if signature.returns_tuple else specs[0]


def reference(
    decomposition: Decomposition, arrays: Sequence[Any], attributes: Mapping[str, Any], precise: bool = True
) -> list[Any]:
    """Return what a decomposition computes, as arrays.

    Parameters
    ----------
    arrays : sequence
        One per input, None if absent.
    precise : bool
        Compute floating-point types in float64.

    Raises
    ------
    MissingDependencyError
        It is written in torch, and torch or onnxscript is not installed.
    Exception
        Whatever the decomposition raises.
    """
    wide = [array.astype("float64") if array is not None and "float" in array.dtype.name else array for array in arrays]
    compute = _onnxscript_reference if decomposition.is_onnxscript else _torch(decomposition).reference
    return list(compute(decomposition, wide if precise else arrays, attributes))


def _torch(decomposition: Decomposition) -> Any:
    """Return the module with the functions for decompositions that are written in torch."""
    for entry in _entry_points():
        return entry.load()
    raise MissingDependencyError(
        f"{decomposition.name} is written in torch, and the package exporters, which runs it, is not installed: "
        'pip install "onnx-pyops[torch]"'
    )


@functools.cache
def _entry_points() -> EntryPoints:
    """Return the entry points, read once, because reading goes through all installed packages."""
    return entry_points(group="pyops.decompositions")


def _onnxscript_body(
    decomposition: Decomposition, inputs: Specs, attributes: Mapping[str, Any], opset: int
) -> onnx.FunctionProto:
    """Return the function itself, with as many inputs as the call; absent ones are left out of its nodes."""
    function: onnx.FunctionProto = decomposition.function.to_function_proto()
    written = opset
    for entry in function.opset_import:  # which has none for ONNX's own domain if no node is of it
        if not entry.domain:
            written, entry.version = entry.version, opset
    absent = {name for name, spec in itertools.zip_longest(function.input, inputs) if spec is None}
    del function.input[len(inputs) :]
    for node in itertools.chain.from_iterable(graph.node for graph in graphs(function)):
        given = [item.name for item in node.attribute]
        if not node.domain and not means_the_same(node.op_type, given, written, opset):
            raise DeclarationError(
                f"{decomposition.name} uses {node.op_type} of opset {written}, which differs from that of opset "
                f"{opset}; write it with onnxscript.opset{opset}, or export with opset_version={written}"
            )
        node.input[:] = ["" if name in absent else name for name in node.input]
    return function


def _onnxscript_reference(decomposition: Decomposition, arrays: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Run the function in ONNX's ReferenceEvaluator."""
    function = decomposition.function.to_function_proto()
    feed = dict(itertools.zip_longest(function.input, arrays))
    return ReferenceEvaluator(function).run(None, feed, dict(attributes))
