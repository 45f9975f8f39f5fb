"""The operators that ONNX Runtime has itself."""

from __future__ import annotations

import functools

ONNX_DOMAIN = "ai.onnx"
DOMAINS = {ONNX_DOMAIN, "ai.onnx.ml", "com.microsoft"}


def is_builtin(domain: str, name: str) -> bool:
    """Whether ONNX Runtime has an operator of this domain and name; ONNX, where it is not installed."""
    return (domain, name) in _operators()


@functools.cache
def _operators() -> frozenset[tuple[str, str]]:
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema as schemas
    except ImportError:
        from onnx.defs import get_all_schemas as schemas
    return frozenset((schema.domain or ONNX_DOMAIN, schema.name) for schema in schemas())
