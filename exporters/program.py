"""The exported program: captured with every registration, and runnable with pyops."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir
import torch

import pyops
from pyops import registry
from pyops.errors import PyopsError

from . import declared_nodes
from ._torch_private import flatten
from .errors import ExportError
from .explanations import causes, explained
from .nodes import Emitted, recorded
from .optimization import all_nodes, optimize
from .translations import translation_table

Model = torch.nn.Module | torch.export.ExportedProgram


class Program(torch.onnx.ONNXProgram):
    """A ``torch.onnx.ONNXProgram`` that runs its model in a `pyops.InferenceSession`."""

    def initialize_inference_session(self, initializer: Callable[[Any], Any] | None = None) -> None:
        """Make the session that calling the program uses.

        Parameters
        ----------
        initializer : callable, optional
            Makes a session from a path or bytes; `pyops.InferenceSession` unless given.
        """
        super().initialize_inference_session(initializer or pyops.InferenceSession)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Run the model on the arguments that it was exported with, or others like them.

        Returns
        -------
        tuple of torch.Tensor
            One per output of the model.

        Raises
        ------
        ExportError
            More or fewer tensors than the model has inputs.
        BaseException
            Whatever a kernel raises, as itself.
        """
        values = input_values([item.name or "" for item in self.model.graph.inputs], args, kwargs)
        return tuple(super().__call__(*values))


def input_values(names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The argument for each input of an exported model: nested ones flattened, None dropped.

    Keywords go by name where an input has it, the rest in order.

    Raises
    ------
    ExportError
        More or fewer tensors than inputs.
    """
    named = {name: value for name, value in kwargs.items() if isinstance(value, torch.Tensor) and name in names}
    unnamed = (args, {name: value for name, value in kwargs.items() if name not in named})
    leaves = [leaf for leaf in flatten(unnamed) if leaf is not None]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    missing = len(names) - len(named)
    if missing not in (len(tensors), len(leaves)):
        raise ExportError(
            f"the arguments have {len(tensors) + len(named)} tensors and the program {len(names)} inputs "
            f"({', '.join(names)}); pass the arguments that the model was exported with, or others like them"
        )
    # Numbers are constants of the graph, unless they were exported as dynamic.
    rest = iter(tensors if len(tensors) == missing else leaves)
    return [named[name] if name in named else next(rest) for name in names]


def capture(model: Model, args: tuple[Any, ...], **arguments: Any) -> Program:
    """Run torch's exporter with every registration applied.

    Raises
    ------
    ExportError
        The model cannot be exported as it stands. What a translation or a shape function of ours
        raised comes out as itself.
    """
    given = arguments.pop("custom_translation_table", None) or {}
    table = {**translation_table(), **given}
    optimized = arguments.pop("optimize", True)
    failure = None
    with recorded() as emitted:
        try:
            exported = _export(model, args, {**arguments, "custom_translation_table": table, "optimize": False})
        except Exception as error:
            ours = (cause for cause in causes(error) if isinstance(cause, PyopsError))
            failure = next(ours, None) or explained(error)
            if failure is None:
                raise
    if failure is not None:
        # Outside the handler, so that torch's error does not become the exception's context.
        raise failure
    program = Program(exported.model, exported.exported_program)
    if optimized:
        optimize(program)
    _import_emitted_versions(program.model, emitted)
    declared_nodes.settle(program.model)
    return program


def _export(model: Model, args: tuple[Any, ...], arguments: dict[str, Any]) -> torch.onnx.ONNXProgram:
    with warnings.catch_warnings():
        # Torch's own copying of its exported program raises this; the user can do nothing about it.
        warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*", FutureWarning)
        # Inputs that share a dimension are meant to share its name.
        warnings.filterwarnings("ignore", r"# The axis name: (\w+) will not be used.*another axis: \1\.", UserWarning)
        try:
            exported = torch.onnx.export(model, args, dynamo=True, **arguments)
        except ValueError as error:
            if not str(error).startswith("Target opset version"):
                raise
            # The opset of a graph without a node of ONNX's own is not converted, only stated.
            exported = torch.onnx.export(model, args, dynamo=True, **{**arguments, "opset_version": None})
            assert exported is not None
            exported.model.opset_imports[""] = arguments["opset_version"]
    assert exported is not None  # with dynamo=True it never is
    return exported


def _import_emitted_versions(model: onnx_ir.Model, emitted: Emitted) -> None:
    """Import of each domain the version under which all its nodes mean what was emitted.

    Torch imports the first version it meets.
    """
    present = {(node.domain, node.op_type) for node in all_nodes(model)}
    versions: dict[str, int] = {}
    for domain, name in present & emitted.keys():
        versions[domain] = max(versions.get(domain, 1), *emitted[domain, name])
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        imports.update({domain: version for domain, version in versions.items() if domain in imports})
    for domain, name in sorted(present & emitted.keys()):
        meant = registry.find(domain, name, versions[domain])
        wrong = emitted[domain, name] - {meant.version} if meant else set()
        if wrong:
            raise ExportError(
                f"the model has {domain}::{name} of version {min(wrong)}, but imports version {versions[domain]} of "
                f"{domain} for other nodes, where {name} means version {meant.version if meant else 0}; a model "
                "imports one version of a domain, so register the newer version of the operator"
            )
