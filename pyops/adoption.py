"""Functions that were decorated with onnxruntime-extensions' own ``onnx_op``, hosted as Ops.

They stay registered there too.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from .errors import DeclarationError
from .op import AnyOp, Op
from .pycustomopdef import DEFAULT_DOMAIN, as_kernel, read_signature

# Where onnxruntime-extensions has operators of its own, written in C++.
_BUILTIN_DOMAINS = {DEFAULT_DOMAIN, "com.microsoft.extensions"}

_ops: weakref.WeakKeyDictionary[Any, AnyOp | DeclarationError] = weakref.WeakKeyDictionary()


def adopted_ops() -> dict[tuple[str, str], AnyOp | DeclarationError]:
    """The functions declared with onnxruntime-extensions, by domain and name; a later one wins.

    One that cannot be adopted is the reason for it, which a model that needs it gets to hear.
    """
    found = {}
    for definition in _definitions():
        if definition not in _ops:
            try:
                _ops[definition] = _adopt(definition)
            except DeclarationError as error:
                _ops[definition] = error
        domain, _, name = str(definition.op_type).rpartition("::")
        found[domain or DEFAULT_DOMAIN, name] = _ops[definition]
    return found


def taken_domains() -> set[str]:
    """The domains that onnxruntime-extensions' library registers, if it is in use at all."""
    if "onnxruntime_extensions" not in sys.modules:
        return set()
    return _BUILTIN_DOMAINS | {domain for domain, _ in adopted_ops()}


def _definitions() -> list[Any]:
    # onnxruntime-extensions offers no list of what is declared; the registry of its Python half is it.
    module = sys.modules.get("onnxruntime_extensions")
    return list(getattr(getattr(module, "Opdef", None), "_odlist", {}).values())


def _adopt(definition: Any) -> AnyOp:
    native = definition._nativedef
    signature = read_signature(
        definition.body, definition.op_type, native.input_types, native.output_types, native.attrs
    )
    return Op(signature, as_kernel(_late_bound(definition), signature))


def _late_bound(definition: Any) -> Callable[..., Any]:
    # Assigning to `body` is how a function is replaced there.
    def body(*arrays: Any, **attributes: Any) -> Any:
        return definition.body(*arrays, **attributes)

    functools.update_wrapper(body, definition.body)
    body.__name__ = getattr(definition.body, "__name__", definition.op_type)
    return body


def is_shipped(op: AnyOp | DeclarationError) -> bool:
    """Return whether onnxruntime-extensions itself declared a function, which nobody asked for."""
    return isinstance(op, Op) and f"{op.__module__}.".startswith("onnxruntime_extensions.")
