"""The declared ops among onnx's own schemas, for as long as somebody wants them there."""

from __future__ import annotations

import atexit
import threading
import warnings
from contextlib import AbstractContextManager
from typing import Any

import onnx

from pyops import registry
from pyops.builtin import ONNX_DOMAIN
from pyops.op import Op

from .inference import inference_function
from .op_schema import op_schema

_Key = tuple[str, str, int]

# Of ONNX itself: a schema entered here would be taken for the standard's.
_STANDARD = {ONNX_DOMAIN, "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"}
_MARK = "Declared with pyops"


class SchemaRegistration(AbstractContextManager["SchemaRegistration"]):
    """Keeps the declared ops among onnx's schemas; made by `register_schemas`.

    Examples
    --------
    >>> import exporters
    >>> registration = exporters.register_schemas()
    >>> registration.close()
    """

    def close(self) -> None:
        """Take the schemas out again, unless another registration still keeps them in."""
        with _lock:
            if self in _registrations:
                _registrations.remove(self)
                if not _registrations:
                    registry.listeners.remove(_follow)
                    _remove_all()

    def __exit__(self, *_: object) -> None:
        self.close()


def register_schemas() -> SchemaRegistration:
    """Make onnx know every declared op, so that its checker and its shape inference do.

    Each op becomes an ``onnx.defs.OpSchema`` with its type constraints, its attributes and their
    defaults, and its shape function. Ops that are declared later are entered as well, and one that is
    declared again replaces its schema. Schemas that others registered stay as they are; an op of
    the same domain, name and version as one of those is left out, with a warning, as is one in a
    domain of ONNX itself, without.

    Returns
    -------
    SchemaRegistration
        A context manager; leaving it, or ``close()``, takes the schemas out. Otherwise they stay until
        the process ends.

    Warns
    -----
    UserWarning
        Somebody else registered a schema of the same domain, name and version.

    Examples
    --------
    >>> import exporters, numpy as np, onnx, pyops
    >>> from numpy.typing import NDArray
    >>> @pyops.onnx_op("schemas::Twice")
    ... def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x + x
    >>> model = onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20, "schemas": 1]>
    ... main (float[n] x) => (float[n] y) { y = schemas.Twice(x) }''')
    >>> with exporters.register_schemas():
    ...     onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
    """
    registration = SchemaRegistration()
    with _lock:
        if not _registrations:
            registry.listeners.append(_follow)
            for versions in registry.all_versions().values():
                for op in versions.values():
                    _enter(op)
        _registrations.append(registration)
    return registration


_lock = threading.RLock()
_registrations: list[SchemaRegistration] = []
_entered: dict[_Key, Op[..., Any]] = {}


def _follow(op: Op[..., Any]) -> None:
    with _lock:
        # Another thread may have declared it once more since.
        _enter(registry.versions(op.domain, op.name).get(op.version, op))


def _enter(op: Op[..., Any]) -> None:
    key = (op.domain, op.name, op.version)
    if _entered.get(key) is op or op.domain in _STANDARD:
        return
    _remove(key)
    if _doc(key) is not None:
        warnings.warn(
            f"onnx has a schema of {op.signature.qualified_name}, version {op.version}, that somebody else registered; "
            "it stays, and the declared op is left out",
            stacklevel=3,
        )
        return
    schema = op_schema(op.signature, doc=f"{_MARK} at {op.location}.")
    schema.set_type_and_shape_inference_function(inference_function(op))
    onnx.defs.register_schema(schema)
    _entered[key] = op


def _remove(key: _Key) -> None:
    if _entered.pop(key, None) is not None and (_doc(key) or "").startswith(_MARK):
        domain, name, version = key
        onnx.defs.deregister_schema(name, version, domain)


def _doc(key: _Key) -> str | None:
    """The text of the schema that onnx has of exactly this version; None if it has none."""
    domain, name, version = key
    if not onnx.defs.has(name, version, domain):
        return None
    schema = onnx.defs.get_schema(name, version, domain)
    return (schema.doc or "") if schema.since_version == version else None


# A process that ends while onnx holds functions of Python's hangs or crashes, depending on onnx.
@atexit.register
def _remove_all() -> None:
    with _lock:
        for key in list(_entered):
            _remove(key)
