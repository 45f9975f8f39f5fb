"""What a new owner must read: what an operator is, where ops come from, reading models, and sessions.

This file is its waist: besides the public names of pyops, all that other packages and folders may use of it. Each name
is imported when it is first used: declarations need no ONNX Runtime, and onnx takes long to import.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .cuda.cuda_arguments import CopyingKernel
    from .cuda.devices import copy_to_cupy, cupy_stream, cupy_with_gpu, is_cupy
    from .models.hosting import Host, is_mistaken
    from .models.model import Key, Model, ModelSource, full_domain, graphs, key_of, load_model
    from .models.op_resolution import describe_missing, import_plugins_of, resolve_ops
    from .ops.decomposition import Decomposition
    from .ops.extensions_decorators import adopted_ops
    from .ops.node_state import States
    from .ops.op import AnyOp, check_output_shapes, compute_op, run_kernel
    from .ops.op_registry import all_op_versions, collecting, declare_op, find_op, op_domains, op_listeners, op_versions
    from .ops.plugins import are_plugins_enabled, import_all_plugins, import_plugins_for, waiting_plugins
    from .ops.source_location import package_of, source_line
    from .runtime.callback_guard import CallbackGuard, signals_deferred
    from .runtime.engine_choice import engine_of
    from .runtime.kernel_exceptions import is_of_onnxruntime, remember_exception
    from .runtime.native.kernel_node import KernelNode
    from .runtime.profiling import SessionNodes
    from .satellites import register_provider
    from .schema.attribute import Attribute, AttributeKind, format_value
    from .schema.call_validation import output_dtypes, split_arguments
    from .schema.hints import named_tuple_of
    from .schema.node_validation import describe_node, find_mismatch, linked_attributes, read_attribute, read_attributes
    from .schema.signature import Input, Output, Signature, TypeParameter

_NAMES = {
    "cuda.cuda_arguments": "CopyingKernel",
    "cuda.devices": "copy_to_cupy cupy_with_gpu is_cupy cupy_stream",
    "models.hosting": "Host is_mistaken",
    "models.model": "Key Model ModelSource full_domain graphs key_of load_model",
    "models.op_resolution": "describe_missing import_plugins_of resolve_ops",
    "ops.decomposition": "Decomposition",
    "ops.extensions_decorators": "adopted_ops",
    "ops.node_state": "States",
    "ops.op": "AnyOp check_output_shapes compute_op run_kernel",
    "ops.op_registry": "all_op_versions collecting declare_op op_domains find_op op_listeners op_versions",
    "ops.plugins": "import_all_plugins import_plugins_for are_plugins_enabled waiting_plugins",
    "ops.source_location": "package_of source_line",
    "runtime.callback_guard": "CallbackGuard signals_deferred",
    "runtime.engine_choice": "engine_of",
    "runtime.kernel_exceptions": "is_of_onnxruntime remember_exception",
    "runtime.native.kernel_node": "KernelNode",
    "runtime.profiling": "SessionNodes",
    "satellites": "register_provider",
    "schema.attribute": "Attribute AttributeKind format_value",
    "schema.call_validation": "output_dtypes split_arguments",
    "schema.node_validation": "describe_node find_mismatch linked_attributes read_attribute read_attributes",
    "schema.signature": "Input Output Signature TypeParameter",
    "schema.hints": "named_tuple_of",
}

# Hidden from type checkers, which read the imports above.
if not TYPE_CHECKING:
    _PLACES = {name: f".{module}" for module, names in _NAMES.items() for name in names.split()}
    __all__ = sorted(_PLACES)

    def __getattr__(name):
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        value = globals()[name] = getattr(importlib.import_module(_PLACES[name], __name__), name)
        return value
