"""Publication of ops in onnxruntime-extensions' registry, for plain onnxruntime sessions."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import onnxruntime

from .._core import AnyOp, AttributeKind, Signature, adopted_ops, import_all_plugins, is_mistaken
from .._support.builtin_operators import ONNX_DOMAIN
from ..errors import EngineError, warn
from . import call_hook, operator_registry
from .session_host import Node, latest_ops, register_all

_ATTRIBUTE_CODES = {AttributeKind.INT: operator_registry.INT, AttributeKind.STRING: operator_registry.STRING}
# The ops already processed: published or left out.
_known: dict[str, AnyOp] = {}
# onnxruntime-extensions' own targets are addresses of objects, hence even.
_targets = itertools.count(operator_registry.HOSTED + 2, 2)


def get_library_path() -> str:
    """Publish the declared ops to onnxruntime-extensions, and return the path of its library.

    For ``options.register_custom_ops_library(pyops.get_library_path())``, in code that cannot use
    `pyops.InferenceSession` or `pyops.register_custom_ops`. Of several versions of an op, sessions use the highest. Ops
    that the library does not support are left out, with a warning that gives the reason. Call this again after
    declaring more ops; each domain has room for about thirty more after its first publication, where an op counts once
    per combination of its types.

    onnxruntime-extensions cannot report exceptions: in such a session a kernel that fails returns outputs without
    elements, ``run`` raises nothing, and the exception goes to the log (logger ``pyops``, on stderr unless logging is
    configured) and to `pyops.last_exception`.

    Returns
    -------
    str
        The result of ``onnxruntime_extensions.get_library_path()``.

    Raises
    ------
    MissingDependencyError
        onnxruntime-extensions is not installed.
    EngineError
        A domain that sessions may be using has no room for the ops declared since.

    Examples
    --------
    >>> import onnxruntime, pyops
    >>> options = onnxruntime.SessionOptions()
    >>> options.register_custom_ops_library(pyops.get_library_path())  # doctest: +SKIP
    """
    with operator_registry.lock:
        return _publish()


def register(options: Any) -> None:
    """Register the library, with the declared ops, in session options.

    Raises
    ------
    EngineError
        `options` is not a SessionOptions object, or got the library before some op was declared.
    """
    if not isinstance(options, onnxruntime.SessionOptions):
        raise EngineError(f"expected an onnxruntime.SessionOptions, got {type(options).__qualname__}")
    with operator_registry.lock:
        _publish()
        call_hook.add_library(options, {op.domain for op in _known.values()})


def _publish() -> str:
    path: str = call_hook.library().get_library_path()
    import_all_plugins()
    register_all()
    others = {domain for domain, _ in adopted_ops(shipped=False)}
    operators: dict[str, list[operator_registry.Operator]] = defaultdict(list)
    refused = []
    changed = {name: op for op in latest_ops() if _known.get(name := op.signature.qualified_name) is not op}
    for name, op in changed.items():
        if refusal := operator_registry.reason_against(op.signature, _reasons_against(op.signature, others)):
            refused.append(refusal)
            operator_registry.hide(name, refusal)
        else:
            codes = {attribute.name: _ATTRIBUTE_CODES[attribute.kind] for attribute in op.signature.attributes}
            target = next(_targets)
            call_hook.targets[target] = Node("", op, None).compute
            operators[op.domain].append(
                operator_registry.Operator(name, operator_registry.choices(op.signature), codes, target)
            )
    for domain, new in operators.items():
        operator_registry.publish(domain, new)
    _known.update(changed)
    if refused:
        warn("skipped ops:\n" + "\n".join(f"  - {line}" for line in refused))
    return path


def _reasons_against(signature: Signature, others: set[str]) -> list[str]:
    domain = f"domain {signature.domain!r}, which"
    attributes = [attribute for attribute in signature.attributes if attribute.kind not in _ATTRIBUTE_CODES]
    found = [f"{attribute.kind.name.lower()} attribute {attribute.name!r}" for attribute in attributes]
    if is_mistaken(signature):
        found.append(f"name {signature.name!r}, which ONNX Runtime's optimizers take for ONNX's operator")
    if signature.domain in (ONNX_DOMAIN, "com.microsoft.extensions"):
        found.append(f"{domain} belongs to another library")
    if signature.domain in others:
        theirs = "functions declared with onnxruntime-extensions' own onnx_op"
        found.append(f"{domain} has {theirs} (declare those with pyops.onnx_op too)")
    return found
