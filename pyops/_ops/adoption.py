"""Adoption, as Ops, of functions decorated with onnxruntime-extensions' own ``onnx_op``.

The functions remain registered with onnxruntime-extensions.
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

# The domains of onnxruntime-extensions' C++ operators.
_BUILTIN_DOMAINS = {DEFAULT_DOMAIN, "com.microsoft.extensions"}

_ops: weakref.WeakKeyDictionary[Any, AnyOp | DeclarationError] = weakref.WeakKeyDictionary()


def adopted_ops() -> dict[tuple[str, str], AnyOp | DeclarationError]:
    """Return the functions declared with onnxruntime-extensions as Ops, by domain and name.

    For a function that cannot be adopted, the value is the DeclarationError to report when a model uses it. Of several
    declarations of a name the last one counts. ``onnxruntime_extensions.enable_py_op(False)`` does not disable them.

    Warns
    -----
    RedeclarationWarning
        Another function has been declared under the name of an adopted one.
    """
    found: dict[tuple[str, str], AnyOp | DeclarationError] = {}
    for key, definition in _definitions():
        if definition not in _ops:
            adopted, current = _adopt(definition), found.get(key)
            if isinstance(adopted, Op) and isinstance(current, Op):
                origin.warn_of_takeover(adopted.signature.qualified_name, current, adopted, stacklevel=3)
            _ops[definition] = adopted
        found[key] = _ops[definition]
    return found


def taken_domains() -> set[str]:
    """Return the domains that onnxruntime-extensions' library registers; none if it has not been imported."""
    if "onnxruntime_extensions" not in sys.modules:
        return set()
    return _BUILTIN_DOMAINS | {domain for domain, _ in adopted_ops()}


def _definitions() -> Iterator[tuple[tuple[str, str], Any]]:
    # onnxruntime-extensions has no public list of declared functions, only this private registry.
    module = sys.modules.get("onnxruntime_extensions")
    for definition in list(getattr(getattr(module, "Opdef", None), "_odlist", {}).values()):
        domain, _, name = str(definition.op_type).rpartition("::")
        yield (domain or DEFAULT_DOMAIN, name), definition


def _adopt(definition: Any) -> AnyOp | DeclarationError:
    native = definition._nativedef
    try:
        signature = read_signature(
            definition.body, definition.op_type, native.input_types, native.output_types, native.attrs
        )
    except DeclarationError as error:
        return error
    # onnxruntime-extensions' own sessions ignore undeclared attributes too.
    signature = replace(signature, ignores_undeclared=True)
    return Op(signature, as_kernel(_late_bound(definition), signature))


def _late_bound(definition: Any) -> Callable[..., Any]:
    # Looks `body` up on each call: onnxruntime-extensions replaces a function by assigning to it.
    def body(*arrays: Any, **attributes: Any) -> Any:
        return definition.body(*arrays, **attributes)

    functools.update_wrapper(body, definition.body)
    body.__name__ = getattr(definition.body, "__name__", definition.op_type)
    return body


def is_shipped(op: AnyOp | DeclarationError) -> bool:
    """Return whether onnxruntime-extensions itself declares the function, rather than the user."""
    return isinstance(op, Op) and f"{op.__module__}.".startswith("onnxruntime_extensions.")
