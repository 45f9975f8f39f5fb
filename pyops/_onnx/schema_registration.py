"""Registration of the ops' schemas with the onnx package."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from typing import Any

import onnx

from .. import Op
from .. import _core as core
from .._support.builtin_operators import ONNX_DOMAIN
from .._support.locks import RLock
from ..errors import warn
from .op_schemas import inference_function, op_schema, type_strs

_Key = tuple[str, str, int]

# Domains of ONNX itself: a schema registered there would be mistaken for a standard one.
_STANDARD = {ONNX_DOMAIN, "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"}
_MARK = "Declared with pyops"


def register_schemas() -> ExitStack:
    """Register every declared op with onnx, for its checker and its shape inference.

    Each op becomes an ``onnx.defs.OpSchema`` with its type constraints, attributes, defaults and shape function. Ops
    that are declared later are registered too, and a redeclared op replaces its schema. Schemas that others registered
    are kept: an op of the same domain, name and version is skipped with a warning. Ops in a domain of ONNX itself, or
    of a type that the installed onnx lacks, are skipped without a warning.

    Returns
    -------
    contextlib.ExitStack
        A context manager; leaving it, or calling ``close()``, removes the schemas, unless another registration is
        still open. Otherwise they stay until the process ends.

    Warns
    -----
    UserWarning
        Other code registered a schema of the same domain, name and version.

    Examples
    --------
    >>> import numpy as np, onnx, pyops
    >>> from numpy.typing import NDArray
    >>> @pyops.onnx_op("schemas::Twice")
    ... def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x + x
    >>> model = onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20, "schemas": 1]>
    ... main (float[n] x) => (float[n] y) { y = schemas.Twice(x) }''')
    >>> with pyops.register_schemas():
    ...     onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
    """
    registration = ExitStack()
    with _lock:
        if not _registrations:
            core.op_listeners.append(_follow)
            for versions in core.all_op_versions().values():
                for op in versions.values():
                    _register(op)
        _registrations.append(registration)
        registration.callback(_unregister, registration)
    return registration


def _unregister(registration: ExitStack) -> None:
    with _lock:
        _registrations.remove(registration)
        if not _registrations:
            core.op_listeners.remove(_follow)
            _remove_all()


_lock = RLock()
_registrations: list[ExitStack] = []
_registered: dict[_Key, Op[..., Any]] = {}


def _follow(op: Op[..., Any]) -> None:
    with _lock:
        # Another thread may have redeclared the op since.
        _register(core.op_versions(op.domain, op.name).get(op.version, op))


def _register(op: Op[..., Any]) -> None:
    key = (op.domain, op.name, op.version)
    if _registered.get(key) is op or op.domain in _STANDARD:
        return
    if not all(type_strs(parameter.dtypes) for parameter in op.signature.type_parameters):
        return
    _remove(key)
    if _doc(key) is not None:
        warn(
            f"onnx has a schema of {op.signature.qualified_name}, version {op.version}, that other code registered; "
            "it stays, and the declared op is left out",
        )
        return
    schema = op_schema(op.signature, doc=f"{_MARK} at {op.location}.")
    schema.set_type_and_shape_inference_function(inference_function(op))
    onnx.defs.register_schema(schema)
    _registered[key] = op


def _remove(key: _Key) -> None:
    if _registered.pop(key, None) is not None and (_doc(key) or "").startswith(_MARK):
        domain, name, version = key
        onnx.defs.deregister_schema(name, version, domain)


def _doc(key: _Key) -> str | None:
    """Return the documentation of the schema that onnx has for exactly this version, or None."""
    domain, name, version = key
    if not onnx.defs.has(name, version, domain):
        return None
    schema = onnx.defs.get_schema(name, version, domain)
    return (schema.doc or "") if schema.since_version == version else None


# A process that exits while onnx holds Python functions hangs or crashes, depending on onnx's version.
@atexit.register
def _remove_all() -> None:
    with _lock:
        for key in list(_registered):
            _remove(key)
