"""The satellites of the core, the providers of ops, and the public names: each module is imported when it is needed.

Declarations must work without ONNX Runtime, and pytest, which loads pyops' plug-in wherever it is installed, must not
import NumPy for it.
"""

from __future__ import annotations

from ._core import satellites

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SATELLITES = {
    "bodies": "._onnx.bodies",
    "compiler": "._machine.compiled",
    "extensions": "._extensions",
    "filling": "._filling.filling",
    "machine": "._machine.machine_node",
}
_PROVIDERS = {"pyops": ".kernels"}
PUBLIC = {
    "InferenceSession": "._core.runtime.inference_session",
    "Op": "._core.ops.op",
    "PyCustomOpDef": "._core.ops.extensions_decorators",
    "build": "._machine.libraries.build",
    "compare_models": ".testing._model_comparison",
    "errors": ".errors",
    "get_library_path": "._extensions",
    "last_exception": "._core.runtime.kernel_exceptions",
    "list_ops": "._display.op_table",
    "onnx_op": "._core.ops.decorator",
    "patch_onnxruntime": "._core.runtime.onnxruntime_patch",
    "profile": "._core.runtime.profiling",
    "reference_ops": "._core.runtime.reference_ops",
    "register_custom_ops": "._core.runtime.inference_session",
    "register_schemas": "._onnx.schema_registration",
    "replace": "._patterns.replacement",
    "shapes": ".shapes",
    "show_model": "._display.netron",
    "testing": ".testing",
}
"""Public name of pyops to the module that defines it, or that it is."""

UNLISTED = {
    "load_ipython_extension": "._display.tracebacks",
    "unload_ipython_extension": "._display.tracebacks",
    "unpickle": "._core.unpickling",
}
"""The same for the functions that ``%load_ext pyops`` and pickle call."""


_UNPICKLED = {
    "Attribute": "._core.schema.attribute:Attribute",
    "AttributeKind": "._core.schema.attribute:AttributeKind",
    "Input": "._core.schema.signature:Input",
    "Output": "._core.schema.signature:Output",
    "Signature": "._core.schema.signature:Signature",
    "TypeParameter": "._core.schema.signature:TypeParameter",
    "body of an op": "._core.ops.op_pickling:declare_arrived",
    "compiled kernel": "._machine.compiled.compiled_kernel:CompiledKernel",
    "op": "._core.ops.op_pickling:arriving",
    "session": "._core.runtime.inference_session:unpickled",
}
"""Name in pickles to the function that makes what is so called. Names stay when functions and modules are renamed."""


def public(name: str) -> Any:
    """Import what a name of pyops stands for."""
    place = (PUBLIC | UNLISTED)[name]
    return _load(place) if place == f".{name}" else getattr(_load(place), name)


def _load(name: str) -> Any:
    import importlib

    return importlib.import_module(name, __package__)


def _later(name: str) -> Callable[[], Any]:
    module, _, attribute = name.partition(":")
    return lambda: getattr(_load(module), attribute) if attribute else _load(module)


satellites.modules.update((part, _later(name)) for part, name in _SATELLITES.items())
satellites.providers.update((domain, _later(name)) for domain, name in _PROVIDERS.items())
satellites.makers.update((name, _later(place)) for name, place in _UNPICKLED.items())
