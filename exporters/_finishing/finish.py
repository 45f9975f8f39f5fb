"""The steps that finish an exported model, in order."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx
import onnx_ir
import torch
from onnx_ir.passes.common import InlinePass
from torch.export.graph_signature import ArgumentSpec, ConstantArgument, InputKind

from pyops._core import Model, find_op, op_domains, resolve_ops
from pyops._support import builtin_operators
from pyops._support.progress import step

from .._capture.model_arguments import Argument, as_json, record_arguments
from .._capture.sizes import constant_sizes
from .._lowering.emission_record import Emission, Functions
from .._lowering.translations import check_opset
from .._torch.private.trees import is_tensor
from ..errors import ExportError
from .integer_division import guard_divisions
from .optimization import all_nodes, optimize


@dataclass(frozen=True)
class Finishing:
    """How a model is finished; the attributes are arguments of `exporters.export`."""

    keep_functions: bool = False
    custom_opsets: Mapping[str, int] = field(default_factory=dict)
    optimize: bool = True


def check_custom_opsets(custom_opsets: Mapping[str, int]) -> None:
    """Validate the ``custom_opsets`` of an export.

    Raises
    ------
    ExportError
        It is not a mapping of domains to versions, has ONNX's own domain, or has a version that ONNX
        Runtime does not know.
    """
    if not isinstance(custom_opsets, Mapping):
        raise ExportError(
            f'custom_opsets is {custom_opsets!r}; write domains and their versions, for example {{"mylibrary": 2}}'
        )
    for domain, version in custom_opsets.items():
        if domain in ("", builtin_operators.ONNX_DOMAIN):
            raise ExportError(f"custom_opsets has ONNX's own domain {domain!r}; pass opset_version={version}")
        if not isinstance(domain, str) or not isinstance(version, int) or version < 1:
            raise ExportError(
                f"custom_opsets has {domain!r}: {version!r}; write a domain and its version, "
                'for example {"mylibrary": 2}'
            )
        unknown = builtin_operators.unknown_version(domain, version)
        if unknown and domain not in op_domains():
            raise ExportError(unknown)


def finish(
    model: onnx_ir.Model, program: torch.export.ExportedProgram | None, emitted: Emission, how: Finishing
) -> None:
    """Finish a model, in place.

    Record its arguments and the sizes that a captured program specializes; add the functions and the opset imports that
    its nodes need; optimize it; guard integer divisions.

    Raises
    ------
    ExportError
        The nodes do not match the declared ops, the opset versions or each other.
    """
    step("finishing the model")
    if program is not None:
        specs = program.graph_signature.input_specs
        record_arguments(model, [_constant(item.arg) for item in specs if item.kind is InputKind.USER_INPUT])
        _fix_sizes(model, program)
    if how.optimize:
        # Before functions are added, because the optimization inlines functions.
        optimize(model, emitted.functions)
    inlined = bool(emitted.functions) and _add_functions(model, emitted, keep=how.keep_functions)
    _set_opset_imports(model, emitted.versions, how.custom_opsets)
    _validate_nodes(model, how.custom_opsets)
    if inlined and how.optimize:
        optimize(model)
    if any(node.op_type in ("Div", "Mod") for node in all_nodes(model)):
        guard_divisions(model)


def _fix_sizes(model: onnx_ir.Model, program: torch.export.ExportedProgram) -> None:
    """Write the sizes that the program specializes into the model's inputs, so that ONNX Runtime rejects others."""
    constants = constant_sizes(program)
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    tensors = [values[name] for name in program.graph_signature.user_inputs if isinstance(name, str) and name in values]
    for value, tensor in zip(model.graph.inputs, filter(is_tensor, tensors), strict=False):
        if value.shape is not None:
            fixed = [_number(str(size), constants) for size in tensor.shape]
            sizes = itertools.zip_longest(value.shape, fixed)  # a complex tensor has one dimension more in the model
            value.shape = onnx_ir.Shape([size if number is None else number for size, number in sizes])


def _number(size: str, constants: Mapping[str, int]) -> int | None:
    return int(size) if size.isdigit() else constants.get(size)


def _constant(argument: ArgumentSpec) -> Argument | None:
    return Argument(argument.name, as_json(argument.value)) if isinstance(argument, ConstantArgument) else None


def _add_functions(model: onnx_ir.Model, emitted: Emission, *, keep: bool) -> bool:
    """Add the functions that the model calls, and inline them unless they are kept.

    Parameters
    ----------
    emitted : Emission
        Extended with the versions of the operators in the functions.

    Returns
    -------
    bool
        Whether any function was inlined.

    Raises
    ------
    ExportError
        Two functions have the same name, or a function was written for an opset version in which one of its
        operators differs from the model's.
    """
    needed = _needed(model, emitted.functions)
    bodies = [onnx_ir.serde.deserialize_function(item.to_function_proto()) for item in needed.values()]
    for body in bodies:
        _import_model_opset(model, body)
        model.functions[body.identifier()] = body
        for node in body.all_nodes():
            if node.domain and (node.domain, node.op_type) not in needed:
                version = body.opset_imports[node.domain]
                op = find_op(node.domain, node.op_type, version)
                emitted.add(node.domain, node.op_type, op.version if op else version)
        # The passes and ONNX Runtime require the model to import every domain that a function uses.
        for domain, version in body.opset_imports.items():
            model.opset_imports[domain] = max(version, model.opset_imports.get(domain, 1))
    for body in bodies:
        body.opset_imports.update({domain: model.opset_imports[domain] for domain in body.opset_imports})
    if keep or not needed:
        return False
    InlinePass(lambda body: (body.domain, body.name) in needed)(model)
    return True


def _needed(model: onnx_ir.Model, functions: Functions) -> Functions:
    """Return the functions that the model calls, directly or through other functions."""
    needed = Functions()
    nodes = model.graph.all_nodes()
    pending = [functions[key] for key in {(node.domain, node.op_type) for node in nodes} & functions.keys()]
    while pending:
        function = pending.pop()
        if needed.add(function):
            pending += function.function_ir.get_called_functions().values()
    return needed


def _import_model_opset(model: onnx_ir.Model, body: onnx_ir.Function) -> None:
    written = body.opset_imports.get("")
    if written is None:
        return
    opset_version = model.opset_imports.setdefault("", written)
    check_opset(f"the function {body.domain}::{body.name}", body.all_nodes(), written, opset_version)
    body.opset_imports[""] = opset_version


def _set_opset_imports(
    model: onnx_ir.Model, emitted: Mapping[tuple[str, str], set[int]], custom_opsets: Mapping[str, int]
) -> None:
    """Set the version that the model imports of each domain.

    It is the user's where `custom_opsets` has one, and otherwise the highest version emitted.

    Parameters
    ----------
    emitted : mapping
        The versions in which each ``(domain, name)`` was emitted.

    Raises
    ------
    ExportError
        Nodes of one domain need different versions; the model has no node of a domain in `custom_opsets`; or an
        operator is not in ONNX at the model's opset version.
    """
    present = {(node.domain, node.op_type) for node in all_nodes(model)}
    unused = custom_opsets.keys() - {domain for domain, _ in present}
    if unused:
        used = ", ".join(sorted({domain for domain, _ in present} - {""})) or "none but ONNX's"
        raise ExportError(
            f"custom_opsets has {', '.join(sorted(unused))}, but the model has no node of that domain; it has {used}"
        )
    # torch imports the version of the first node of a domain, which may be lower than another node's.
    versions: dict[str, int] = {}
    for domain, name in present & emitted.keys():
        versions[domain] = max(versions.get(domain, 1), *emitted[domain, name])
    versions |= custom_opsets
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        imports.update({domain: version for domain, version in versions.items() if domain in imports})
    for domain, name in sorted(present & emitted.keys()):
        if domain not in custom_opsets:
            _check_meaning(domain, name, emitted[domain, name], versions[domain])
    _check_onnx_operators(model)


def _check_meaning(domain: str, name: str, emitted: set[int], version: int) -> None:
    meant = find_op(domain, name, version)
    wrong = emitted - {meant.version} if meant else set()
    if wrong:
        raise ExportError(
            f"the model has {domain}::{name} of version {min(wrong)}, but imports version {version} of "
            f"{domain} for other nodes, where {name} means version {meant.version if meant else 0}; a model "
            "imports one version of a domain, so register the newer version of the operator"
        )


def _check_onnx_operators(model: onnx_ir.Model) -> None:
    opset_version = model.opset_imports.get("", 1)
    named = {node.op_type for node in all_nodes(model) if not node.domain}
    problems = [
        builtin_operators.opset_too_old(name, opset_version)
        for name in sorted(named)
        if not onnx.defs.has(name, opset_version)
        and find_op(builtin_operators.ONNX_DOMAIN, name, opset_version) is None
    ]
    if problems:
        raise ExportError("; ".join(problems))


def _validate_nodes(model: onnx_ir.Model, custom_opsets: Mapping[str, int]) -> None:
    """Name absent inputs before a variadic one, and validate each node against the declaration of its op.

    Nodes that a translation emits are validated when they are emitted, for the version that the translation names.
    The others come from ``torch.onnx.ops.symbolic``, an onnxscript function or the user's translation table.

    Parameters
    ----------
    custom_opsets : mapping
        What the user passed, named in the error.

    Raises
    ------
    ExportError
        A node's inputs, outputs or attributes differ from the declaration; a domain of declared ops has no op of
        the node's name and version; or ONNX Runtime does not know a version that the model imports.
    """
    domains = op_domains()
    declared = [node for node in all_nodes(model) if (node.domain or builtin_operators.ONNX_DOMAIN) in domains]
    if not declared and model.opset_imports.keys() <= {""}:
        return
    _name_absent_inputs(model)
    proto = onnx.ModelProto()
    proto.graph.node.extend(map(onnx_ir.serde.serialize_node, declared))
    proto.opset_import.extend(onnx.helper.make_opsetid(*item) for item in model.opset_imports.items())
    proto.functions.extend(onnx.FunctionProto(domain=key[0], name=key[1]) for key in model.functions)
    problems = resolve_ops(Model(b"", proto), {}).problems
    if problems:
        asked = f"with custom_opsets={dict(custom_opsets)} " if custom_opsets else ""
        lines = "".join(f"\n  - {line}" for line in dict.fromkeys(problems))
        raise ExportError(f"{asked}the model and the declared ops disagree:{lines}")


def _name_absent_inputs(model: onnx_ir.Model) -> None:
    """Give absent inputs before a variadic one their empty names, which ONNX requires and torch trims."""
    for node in all_nodes(model):
        op = find_op(node.domain, node.op_type, model.opset_imports.get(node.domain, 1))
        if op is not None and op.signature.inputs and op.signature.inputs[-1].variadic:
            node.resize_inputs(max(len(node.inputs), len(op.signature.inputs) - 1))
