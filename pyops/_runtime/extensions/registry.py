"""The operator registry of onnxruntime-extensions: what it supports, and how ops are added to it.

The registry is a C++ vector of operators per domain. ONNX Runtime keeps pointers into it, and a vector moves when it
outgrows its capacity; a session that runs afterwards ends the process. So a domain gets its full capacity when it is
created, and nothing is ever removed.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._locks import RLock
from ..._schema.dtypes import DType, dtype_name, element_type
from ..._schema.signature import Signature
from ...errors import EngineError

INT, STRING = 7, 8
"""Type codes of attributes."""

_NUMBERS = (np.float32, np.float64, np.bool_, np.int8, np.int16, np.int32, np.int64)
_UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
# What onnxruntime-extensions can pass to Python and back, strings as object arrays; any other type ends the process.
_SUPPORTED: tuple[DType, ...] = tuple(map(np.dtype, (*_NUMBERS, *_UNSIGNED, np.object_)))

MOST_OUTPUTS = 256
_MOST_CHOICES = 256

lock = RLock()


class Types(NamedTuple):
    """Type codes of an operator's inputs and outputs."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def reasons_against(signature: Signature) -> list[str]:
    """Return descriptions of the features of an op that onnxruntime-extensions does not support."""
    found = [f"optional input {item.name!r}" for item in signature.inputs if item.optional]
    found += [f"variadic input {item.name!r}" for item in signature.inputs if item.variadic]
    found += ["state, which belongs to a node"] if signature.takes_state else []
    found += [f"variadic output {item.name!r}" for item in signature.outputs if item.variadic]
    for parameter in signature.type_parameters:
        if not any(map(is_supported, parameter.dtypes)):
            found.append(f"type {' or '.join(map(dtype_name, parameter.dtypes))}")
    if len(signature.outputs) > MOST_OUTPUTS:
        found.append(f"{len(signature.outputs)} outputs ({MOST_OUTPUTS} at most)")
    if not found and len(choices(signature)) > _MOST_CHOICES:
        found.append(f"type parameters, which have more than {_MOST_CHOICES} combinations of types")
    return found


def is_supported(dtype: DType) -> bool:
    """Return whether onnxruntime-extensions supports this element type."""
    return dtype in _SUPPORTED


def describe_reasons(signature: Signature, reasons: Sequence[str]) -> str:
    """Return a one-line message that says why the extensions engine cannot host an op."""
    rows = ([element_type(dtype) for dtype in parameter.dtypes] for parameter in signature.type_parameters)
    is_native = all(any(row and row.ort for row in of_parameter) for of_parameter in rows)
    end = "; the native engine does" if is_native else ", and the native engine does not either"
    return f"{signature.qualified_name}: onnxruntime-extensions does not support its {', '.join(reasons)}{end}"


def choices(signature: Signature) -> tuple[Types, ...]:
    """Return one `Types` per assignment of dtypes to an op's type parameters.

    onnxruntime-extensions has no generic operators: each assignment is a separate operator.
    """
    found = []
    parameters = signature.type_parameters
    supported = (filter(is_supported, parameter.dtypes) for parameter in parameters)
    for choice in itertools.islice(itertools.product(*supported), _MOST_CHOICES + 1):
        chosen = zip(parameters, choice, strict=True)
        codes = {parameter: row.onnx for parameter, dtype in chosen if (row := element_type(dtype))}
        inputs, outputs = (tuple(codes[item.type] for item in items) for items in (signature.inputs, signature.outputs))
        found.append(Types(inputs, outputs))
    return tuple(found)


NODE = "pyops_node"
"""The string attribute that holds a node's key."""

HOST_OP_TYPE = "Kernel"

_hosting_domains: dict[tuple[tuple[Types, ...], int], str] = {}


def hosting_domain(types: tuple[Types, ...], target: int) -> str:
    """Return a domain whose operator ``Kernel`` has these types and calls `target`; create it if necessary.

    Ops with equal types and target share a domain, which never changes afterwards.
    """
    with lock:
        if (types, target) not in _hosting_domains:
            domain = f"pyops.extensions{len(_hosting_domains)}"
            _add([_define(f"{domain}::{HOST_OP_TYPE}", item, {NODE: STRING}, target) for item in types])
            _hosting_domains[types, target] = domain
        return _hosting_domains[types, target]


# A vector that grew one by one beyond 64 operators has room for at least 94, whether its capacity grows by half (Visual
# Studio) or doubles; one of them may be onnxruntime-extensions' own. Each operator adds about ten microseconds to the
# creation of a session.
_PADDED, _MOST = 65, 93

_published: dict[str, dict[str, list[Any]]] = {}


def published_domains() -> set[str]:
    """Return the domains of ops that are in the registry under their own names."""
    return set(_published)


class Operator(NamedTuple):
    """A published op. Sessions read this when they are created, and keep the target."""

    types: tuple[Types, ...]
    attributes: Mapping[str, int]
    target: int


def publish(domain: str, operators: Mapping[str, Operator]) -> None:
    """Make operators visible to new sessions under their own names, replacing any with the same names.

    Raises
    ------
    EngineError
        The domain may be in use by sessions and has no room for these operators.
    """
    is_new = domain not in _published
    present = _published.get(domain, {})
    added = {
        name: [
            _define(f"{domain}::{name}", types, operator.attributes, operator.target)
            for types in operator.types[len(present.get(name, ())) :]
        ]
        for name, operator in operators.items()
    }
    definitions = list(itertools.chain(*added.values()))
    if is_new:
        rooms = range(_PADDED - len(definitions))
        added |= {name: [_define(f"{domain}::{name}", _ONE, {}, 0)] for name in (f"_room_{room}" for room in rooms)}
        definitions = list(itertools.chain(*added.values()))
    elif definitions and sum(map(len, present.values())) + len(definitions) > _MOST:
        raise EngineError(
            f"onnxruntime-extensions' registry has no room left for domain {domain!r}, and existing sessions would "
            "crash the process if it grew; declare all ops before the first pyops.get_library_path(), use "
            "pyops.InferenceSession or pyops.register_custom_ops, whose native engine has no such limit, or start a "
            "new process"
        )
    for name in operators.keys() & present.keys():
        hide(domain, name, f"{domain}::{name} is now declared without these types")
        for definition, types in zip(present[name], operators[name].types, strict=False):
            _set(definition, types, operators[name].attributes, operators[name].target)
    _published[domain] = {name: present.get(name, []) + added.get(name, []) for name in present.keys() | added.keys()}
    _add(definitions)


def hide(domain: str, name: str, why: str) -> None:
    """Make new sessions that use an operator fail, by requiring an attribute named like the reason."""
    for definition in _published.get(domain, {}).get(name, ()):
        definition.attrs = {why: INT}


_ONE = Types((1,), (1,))  # float32 to float32


def _define(op_type: str, types: Types, attributes: Mapping[str, int], target: int) -> Any:
    from onnxruntime_extensions import PyCustomOpDef

    definition = PyCustomOpDef()
    definition.op_type = op_type
    _set(definition, types, attributes, target)
    return definition


def _set(definition: Any, types: Types, attributes: Mapping[str, int], target: int) -> None:
    definition.input_types, definition.output_types = map(list, types)
    definition.attrs = dict(attributes)
    definition.obj_id = target


_immortal: list[Any] = []


def _add(definitions: Sequence[Any]) -> None:
    from onnxruntime_extensions import _ocos

    _immortal.extend(definitions)
    # Runs only C code: between two bytecodes another thread could register a domain, which would then move.
    deque(map(_ocos.add_custom_op, definitions), maxlen=0)


def size() -> int:
    """Return how many operators pyops has added to the registry."""
    return len(_immortal)
