"""ONNX Runtime's built-in operators."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

ONNX_DOMAIN = "ai.onnx"
DOMAINS = {ONNX_DOMAIN, "ai.onnx.ml", "com.microsoft"}


def is_builtin(domain: str, name: str) -> bool:
    """Return whether ONNX Runtime has an operator of this domain and name.

    If ONNX Runtime is not installed, onnx's schemas decide.
    """
    return (domain, name) in _operators()


def unknown_version(domain: str, version: int) -> str | None:
    """Return a message if ONNX Runtime does not support this version of one of its domains, otherwise None.

    ONNX's own domain is not checked, since ONNX Runtime reports its versions itself.
    """
    known = _versions().get(domain, version) if domain in DOMAINS - {ONNX_DOMAIN} else version
    if version <= known:
        return None
    return f"ONNX Runtime supports {domain!r} up to version {known}, not {version}; import version {known} of it"


def opset_too_old(name: str, opset: int) -> str:
    """Return the message for an operator that the imported opset of ONNX's own domain does not contain."""
    first = first_opset(name)
    if not first:
        return f"no version of ONNX has an operator {name}: a node of another domain must name that domain"
    return (
        f"{name} was added to ONNX after opset {opset}, which the model imports; export it with opset_version={first} "
        "or a later one that this ONNX Runtime supports"
    )


def first_opset(name: str) -> int:
    """Return the first opset of ONNX's own domain that has an operator; 0 if none has."""
    import onnx

    found = (item for item in onnx.defs.get_all_schemas_with_history() if item.name == name and not item.domain)
    return min((item.since_version for item in found), default=0)


@functools.cache
def _operators() -> frozenset[tuple[str, str]]:
    return frozenset((schema.domain or ONNX_DOMAIN, schema.name) for schema in schemas())


@functools.cache
def _versions() -> dict[str, int]:
    versions: dict[str, int] = {}
    for schema in schemas():
        versions[schema.domain] = max(schema.since_version, versions.get(schema.domain, 1))
    return versions


def schemas() -> Iterable[Any]:
    """Return every schema of ONNX Runtime, or of onnx if ONNX Runtime is not installed."""
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema as all_schemas
    except ImportError:
        from onnx.defs import get_all_schemas as all_schemas
    found: Iterable[Any] = all_schemas()
    return found
