"""Ops in sessions that are ONNX Runtime's own, which take onnxruntime-extensions' library as they find it."""

from __future__ import annotations

import functools
import warnings
import weakref
from typing import Any

import onnxruntime

from .. import hosting, plugins, registry
from ..attribute import AttributeKind
from ..builtin import ONNX_DOMAIN
from ..errors import EngineError
from ..op import AnyOp
from ..signature import Signature
from . import extensions_hook as hook
from . import extensions_registry
from .extensions import place_all
from .extensions_call import compute
from .extensions_carried import obstacles, refusal
from .extensions_library import add_library, library

_published: dict[tuple[str, str], tuple[extensions_registry.Published, AnyOp]] = {}
_told: weakref.WeakSet[AnyOp] = weakref.WeakSet()
_ATTRIBUTE_CODES = {AttributeKind.INT: 7, AttributeKind.STRING: 8}


def plain_obstacles(signature: Signature) -> list[str]:
    """Why an op cannot run in a session that is not ours."""
    found = [
        f"{attribute.kind.name.lower()} attribute {attribute.name!r}"
        for attribute in signature.attributes
        if attribute.kind not in _ATTRIBUTE_CODES
    ]
    if hosting.is_mistaken(signature):
        found.append(f"name {signature.name!r}, which ONNX Runtime's optimizers take for ONNX's operator")
    if signature.domain in (ONNX_DOMAIN, "com.microsoft.extensions"):
        found.append(f"domain {signature.domain!r}, which is another library's")
    return obstacles(signature) + found


def get_library_path() -> str:
    """The path of onnxruntime-extensions' library, whose registry then has the declared ops.

    For ``options.register_custom_ops_library(pyops.get_library_path())``. Of several versions of an op,
    sessions see the highest. An op that the library cannot carry is left out, with a warning that says why.
    Call this again after declaring more ops.

    Returns
    -------
    str
        As ``onnxruntime_extensions.get_library_path()``.

    Raises
    ------
    MissingDependencyError
        onnxruntime-extensions is not installed.
    EngineError
        A domain has got more ops since sessions may be using it than there is room for.

    Examples
    --------
    >>> import onnxruntime, pyops
    >>> options = onnxruntime.SessionOptions()
    >>> options.register_custom_ops_library(pyops.get_library_path())  # doctest: +SKIP
    """
    with extensions_registry.lock:
        path: str = library().get_library_path()
        _publish(stacklevel=3)
        place_all(registry.latest())
    return path


def register(options: Any) -> None:
    """Add the library, with the declared ops, to session options.

    Raises
    ------
    EngineError
        `options` are none, or have the library from before some op was declared.
    """
    if not isinstance(options, onnxruntime.SessionOptions):
        raise EngineError(f"expected an onnxruntime.SessionOptions, got {type(options).__qualname__}")
    with extensions_registry.lock:
        library()
        add_library(options, _publish(stacklevel=4))


def _publish(stacklevel: int) -> set[tuple[str, str]]:
    plugins.import_all()
    refused: dict[AnyOp, str] = {}
    shown: dict[str, dict[str, AnyOp]] = {}
    for op in registry.latest():
        reasons = plain_obstacles(op.signature)
        if reasons:
            refused[op] = refusal(op.signature, reasons)
            if (op.domain, op.name) in _published:
                _published[op.domain, op.name][0].hide(hook.add_target(functools.partial(_refuse, refused[op])))
        else:
            shown.setdefault(op.domain, {})[op.name] = op
    for domain, ops in shown.items():
        extensions_registry.reserve(domain, sum(len(extensions_registry.choices(op.signature)) for op in ops.values()))
        for name, op in ops.items():
            published, current = _published.get((domain, name), (extensions_registry.Published(), None))
            if current is not op:
                codes = {attribute.name: _ATTRIBUTE_CODES[attribute.kind] for attribute in op.signature.attributes}
                target = hook.add_target(functools.partial(_compute_plain, op))
                published.show((domain, name), extensions_registry.choices(op.signature), codes, target)
                _published[domain, name] = published, op
    untold = [line for op, line in refused.items() if op not in _told]
    _told.update(refused)
    if untold:
        warnings.warn("left out:\n" + "\n".join(f"  - {line}" for line in untold), stacklevel=stacklevel)
    return {(domain, name) for domain, ops in shown.items() for name in ops}


def _refuse(why: str, call: hook.HookCall) -> hook.Answer:
    raise EngineError(why)


def _compute_plain(op: AnyOp, call: hook.HookCall) -> hook.Answer:
    given = {name: _attribute(op.signature, name, text) for name, text in call.attributes.items()}
    return compute(op, call, given)


def _attribute(signature: Signature, name: str, text: str) -> Any:
    attribute = signature.attribute(name)
    return int(text) if attribute is not None and attribute.kind is AttributeKind.INT else text
