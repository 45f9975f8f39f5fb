"""Registration of the declared ops' schemas with onnx."""

from __future__ import annotations

import atexit
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import onnx
from onnx.shape_inference import InferenceError

from pyops._ops import registry
from pyops._ops.builtin import ONNX_DOMAIN
from pyops._ops.op import Op
from pyops._schema import node, validation
from pyops._schema.dtypes import DType, element_type, from_onnx
from pyops._schema.specs import RuntimeDim, SymbolicDim, TensorSpec
from pyops.errors import InputError, ShapeInferenceError, UnknownSizeError

from .op_schema import op_schema

if TYPE_CHECKING:
    from onnx.shape_inference import InferenceContext


def inference_function(op: Op[..., Any]) -> Callable[[InferenceContext], None]:
    """Return a function for ``onnx.defs.OpSchema.set_type_and_shape_inference_function``.

    It sets the element types that follow from the declaration, and the shapes from the op's shape function. If that
    needs a size that the model does not give, shapes stay unknown. For a node that the declaration or the shape
    function rejects, it raises ``onnx.shape_inference.InferenceError`` whatever onnx's ``strict_mode``, since no
    session would run the node.
    """

    def infer(context: InferenceContext) -> None:
        try:
            _infer(op, context)
        except (InputError, ShapeInferenceError) as error:
            # onnx keeps the message of a Python exception only if it is of this class.
            raise InferenceError(f"a node of {op.signature.qualified_name}: {error}") from error

    return infer


def _infer(op: Op[..., Any], context: InferenceContext) -> None:
    present = [context.has_input(index) for index in range(context.get_num_inputs())]
    while present and not present[-1]:
        present.pop()
    types = [_tensor_type(context, index) if given else None for index, given in enumerate(present)]
    dtypes = [None if item is None else _dtype(item) for item in types]
    if any(given and dtype is None for given, dtype in zip(present, dtypes, strict=True)):
        return  # onnx does not know the type of an input
    declared = validation.output_dtypes(op.signature, dtypes)
    count = context.get_num_outputs()
    for index in range(count):
        dtype = declared[min(index, len(declared) - 1)]
        if dtype is not None:
            _set_output(context, index, dtype, None)
    if op.shape_function is None or any(item is not None and not item.HasField("shape") for item in types):
        return
    specs = [
        None if item is None or dtype is None else TensorSpec(tuple(map(_dim, item.shape.dim)), dtype)
        for item, dtype in zip(types, dtypes, strict=True)
    ]
    protos = [proto for item in op.signature.attributes if (proto := context.get_attribute(item.name)) is not None]
    try:
        outputs = op.infer_shapes(*specs, **node.read_attributes(onnx.NodeProto(attribute=protos), op.signature))
    except UnknownSizeError:
        return
    if count > len(outputs):
        raise ShapeInferenceError(f"it has {count} outputs, and the shape function gives {len(outputs)}")
    for index, spec in enumerate(outputs[:count]):
        _set_output(context, index, spec.dtype, spec.shape)


def _tensor_type(context: InferenceContext, index: int) -> onnx.TypeProto.Tensor:
    proto = context.get_input_type(index)
    return proto.tensor_type if proto is not None and proto.HasField("tensor_type") else onnx.TypeProto.Tensor()


def _dtype(item: onnx.TypeProto.Tensor) -> DType | None:
    row = from_onnx(item.elem_type)
    return row.dtype if row else None


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Any:
    if dim.HasField("dim_value"):
        return dim.dim_value
    return SymbolicDim(dim.dim_param) if dim.dim_param else RuntimeDim()


def _set_output(context: InferenceContext, index: int, dtype: DType, shape: Sequence[Any] | None) -> None:
    row = element_type(dtype)
    assert row is not None
    # A dimension known only at run time gets no name, because equal names mean equal sizes.
    dims = None if shape is None else [None if isinstance(dim, RuntimeDim) else _plain(dim) for dim in shape]
    context.set_output_type(index, onnx.helper.make_tensor_type_proto(row.onnx, dims))


def _plain(dim: Any) -> int | str:
    return dim if isinstance(dim, int) else str(dim)


_Key = tuple[str, str, int]

# Domains of ONNX itself: a schema registered there would be mistaken for a standard one.
_STANDARD = {ONNX_DOMAIN, "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"}
_MARK = "Declared with pyops"


class SchemaRegistration(AbstractContextManager["SchemaRegistration"]):
    """A registration of the declared ops' schemas with onnx; `register_schemas` returns it.

    Examples
    --------
    >>> import exporters
    >>> registration = exporters.register_schemas()
    >>> registration.close()
    """

    def close(self) -> None:
        """Remove the schemas, unless another registration is still open."""
        with _lock:
            if self in _registrations:
                _registrations.remove(self)
                if not _registrations:
                    registry.listeners.remove(_follow)
                    _remove_all()

    def __exit__(self, *_: object) -> None:
        self.close()


def register_schemas() -> SchemaRegistration:
    """Register every declared op with onnx, for its checker and its shape inference.

    Each op becomes an ``onnx.defs.OpSchema`` with its type constraints, attributes, defaults and shape function. Ops
    that are declared later are registered too, and a redeclared op replaces its schema. Schemas that others registered
    are kept: an op of the same domain, name and version is skipped with a warning. Ops in a domain of ONNX itself are
    skipped without one.

    Returns
    -------
    SchemaRegistration
        A context manager; leaving it, or calling ``close()``, removes the schemas. Otherwise they stay until
        the process ends.

    Warns
    -----
    UserWarning
        Other code registered a schema of the same domain, name and version.

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
                    _register(op)
        _registrations.append(registration)
    return registration


_lock = threading.RLock()
_registrations: list[SchemaRegistration] = []
_registered: dict[_Key, Op[..., Any]] = {}


def _follow(op: Op[..., Any]) -> None:
    with _lock:
        # Another thread may have redeclared the op since.
        _register(registry.versions(op.domain, op.name).get(op.version, op))


def _register(op: Op[..., Any]) -> None:
    key = (op.domain, op.name, op.version)
    if _registered.get(key) is op or op.domain in _STANDARD:
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
