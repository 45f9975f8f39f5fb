"""Functions that were decorated with onnxruntime-extensions' own ``onnx_op``, hosted as Ops.

They stay registered there too.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .._schema.pycustomopdef import DEFAULT_DOMAIN, as_kernel, read_signature
from ..errors import DeclarationError
from . import origin
from .op import AnyOp, Op

# Where onnxruntime-extensions has operators of its own, written in C++.
_BUILTIN_DOMAINS = {DEFAULT_DOMAIN, "com.microsoft.extensions"}

_ops: weakref.WeakKeyDictionary[Any, AnyOp | DeclarationError] = weakref.WeakKeyDictionary()


def adopted_ops() -> dict[tuple[str, str], AnyOp | DeclarationError]:
    """The functions declared with onnxruntime-extensions, by domain and name; a later one wins.

    While ``onnxruntime_extensions.enable_py_op(False)`` holds, those in its default domain are not among them,
    where it then has its operators in C++ alone.
    One that cannot be adopted is the reason for it, which a model that needs it gets to hear.
    """
    found: dict[tuple[str, str], AnyOp | DeclarationError] = {}
    default_domain_has_some = _is_enabled()
    for key, definition in _definitions():
        if key[0] == DEFAULT_DOMAIN and not default_domain_has_some:
            continue
        if definition not in _ops:
            adopted, current = _adopt(definition), found.get(key)
            if isinstance(adopted, Op) and isinstance(current, Op):
                origin.tell_takeover(adopted.signature.qualified_name, current, adopted, stacklevel=3)
            _ops[definition] = adopted
        found[key] = _ops[definition]
    return found


def is_disabled(domain: str, name: str) -> bool:
    """Whether ``onnxruntime_extensions.enable_py_op(False)`` alone keeps a function from being an op."""
    return (domain, name) in dict(_definitions()) and (domain, name) not in adopted_ops()


def taken_domains() -> set[str]:
    """The domains that onnxruntime-extensions' library registers, if it is in use at all."""
    if "onnxruntime_extensions" not in sys.modules:
        return set()
    return _BUILTIN_DOMAINS | {domain for domain, _ in adopted_ops()}


def _definitions() -> Iterator[tuple[tuple[str, str], Any]]:
    # onnxruntime-extensions offers no list of what is declared; the registry of its Python half is it.
    module = sys.modules.get("onnxruntime_extensions")
    for definition in list(getattr(getattr(module, "Opdef", None), "_odlist", {}).values()):
        domain, _, name = str(definition.op_type).rpartition("::")
        yield (domain or DEFAULT_DOMAIN, name), definition


def _is_enabled() -> bool:
    extensions = sys.modules.get("onnxruntime_extensions")
    # The one way to ask is to set it, which returns what it was.
    enable = getattr(extensions, "enable_py_op", None)
    if enable is None or enable(True):
        return True
    enable(False)
    return False


def _adopt(definition: Any) -> AnyOp | DeclarationError:
    native = definition._nativedef
    try:
        signature = read_signature(
            definition.body, definition.op_type, native.input_types, native.output_types, native.attrs
        )
    except DeclarationError as error:
        return error
    # As its own sessions do.
    signature = replace(signature, ignores_undeclared=True)
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
