"""The operator registry of onnxruntime-extensions: what it supports, and how ops are added to it.

The registry is a C++ vector of operators per domain. ONNX Runtime keeps pointers into it, and a vector moves when it
outgrows its capacity; a session that runs afterwards ends the process. So a domain gets its full capacity when it is
created, and nothing is ever removed.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._core import Signature
from .._support.element_types import DType, dtype_name, element_type
from .._support.locks import RLock
from ..errors import EngineError

INT, STRING = 7, 8
"""Type codes of attributes."""

_NUMBERS = (np.float32, np.float64, np.bool_, np.int8, np.int16, np.int32, np.int64)
_UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
# What onnxruntime-extensions can pass to Python and back, strings as object arrays; any other type ends the process.
_SUPPORTED: tuple[DType, ...] = tuple(map(np.dtype, (*_NUMBERS, *_UNSIGNED, np.object_)))

MOST_OUTPUTS = 256
_MOST_CHOICES = 256

lock = RLock()
"""Held while operators are added."""


Types = tuple[tuple[int, ...], tuple[int, ...]]
"""Type codes of an operator's inputs and outputs."""


def is_supported(dtype: DType) -> bool:
    """Return whether onnxruntime-extensions supports this element type."""
    return dtype in _SUPPORTED


def reason_against(signature: Signature, others: Iterable[str] = ()) -> str | None:
    """Return a one-line message that says why the extensions engine cannot host an op; None if it can.

    Parameters
    ----------
    others : iterable of str
        Other features of the op that prevent it.
    """
    reasons = [*_reasons_against(signature), *others]
    if not reasons:
        return None
    rows = ([element_type(dtype) for dtype in parameter.dtypes] for parameter in signature.type_parameters)
    is_native = all(any(row and row.ort for row in of_parameter) for of_parameter in rows)
    end = "; the native engine does" if is_native else ", and the native engine does not either"
    return f"{signature.qualified_name}: onnxruntime-extensions does not support its {', '.join(reasons)}{end}"


def _reasons_against(signature: Signature) -> list[str]:
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


def choices(signature: Signature) -> tuple[Types, ...]:
    """Return the `Types` of each assignment of dtypes to an op's type parameters.

    onnxruntime-extensions has no generic operators: an operator has a definition for each assignment.
    """
    found = []
    parameters = signature.type_parameters
    supported = (filter(is_supported, parameter.dtypes) for parameter in parameters)
    for choice in itertools.islice(itertools.product(*supported), _MOST_CHOICES + 1):
        chosen = zip(parameters, choice, strict=True)
        codes = {parameter: row.onnx for parameter, dtype in chosen if (row := element_type(dtype))}
        inputs, outputs = (tuple(codes[item.type] for item in items) for items in (signature.inputs, signature.outputs))
        found.append((inputs, outputs))
    return tuple(found)


SESSION, NODE = "pyops_session", "pyops_node"
"""The string attributes that hold the keys of a node's session and of the node."""

HOST_OP_TYPE = "Kernel"
HOSTED = 1
"""The target of the operators that host the nodes of pyops sessions."""


class Operator(NamedTuple):
    """An operator of the registry, with its domain in its name."""

    name: str
    types: Sequence[Types]
    attributes: Mapping[str, int]
    target: int


sizes: Counter[str] = Counter()
"""The number of definitions that pyops has added to each domain."""

# By operator name. The registry has pointers to them.
_definitions: dict[str, list[Any]] = {}
_hosting_domains: dict[tuple[Types, ...], str] = {}


def hosting_domain(signature: Signature) -> str:
    """Return a domain whose operator ``Kernel`` has an op's types; create it if necessary.

    Ops with equal types share a domain, which never changes afterwards.
    """
    types = choices(signature)
    if types not in _hosting_domains:
        domain = f"pyops.extensions{len(_hosting_domains)}"
        _add(domain, [Operator(f"{domain}::{HOST_OP_TYPE}", types, {SESSION: STRING, NODE: STRING}, HOSTED)])
        _hosting_domains[types] = domain
    return _hosting_domains[types]


# A vector that grew one by one beyond 64 operators has room for at least 94, whether its capacity grows by half (Visual
# Studio) or doubles; one of them may be onnxruntime-extensions' own. Each operator adds about ten microseconds to the
# creation of a session.
_PADDED, _MOST = 65, 93


def publish(domain: str, operators: Sequence[Operator]) -> None:
    """Make operators visible to new sessions under their own names, replacing any with the same names.

    Raises
    ------
    EngineError
        The domain may be in use by sessions and has no room for these operators.
    """
    new = sum(len(operator.types[len(_definitions.get(operator.name, ())) :]) for operator in operators)
    if not sizes[domain]:
        rooms = (Operator(f"{domain}::_room_{room}", [((1,), (1,))], {}, 0) for room in range(_PADDED - new))
        operators = [*operators, *rooms]
    elif new and sizes[domain] + new > _MOST:
        raise EngineError(
            f"onnxruntime-extensions' registry has no room left for domain {domain!r}, and existing sessions would "
            "crash the process if it grew; declare all ops before the first pyops.get_library_path(), use "
            "pyops.InferenceSession or pyops.register_custom_ops, whose native engine has no such limit, or start a "
            "new process"
        )
    _add(domain, operators)


def hide(name: str, why: str) -> None:
    """Make new sessions that use an operator fail, by requiring an attribute named like the reason."""
    for definition in _definitions.get(name, ()):
        definition.attrs = {why: INT}


def _add(domain: str, operators: Iterable[Operator]) -> None:
    """Add operators, or change earlier ones. Sessions read them when they are created, and keep the target."""
    from onnxruntime_extensions import PyCustomOpDef, _ocos

    added = []
    for operator in operators:
        hide(operator.name, f"{operator.name} is now declared without these types")
        definitions = _definitions.setdefault(operator.name, [])
        missing = [PyCustomOpDef() for _ in operator.types[len(definitions) :]]
        definitions += missing
        added += missing
        for definition, types in zip(definitions, operator.types, strict=False):
            definition.op_type, definition.obj_id = operator.name, operator.target
            definition.input_types, definition.output_types = map(list, types)
            definition.attrs = dict(operator.attributes)
    sizes[domain] += len(added)
    # Runs only C code: between two bytecodes another thread could register a domain, which would then move.
    deque(map(_ocos.add_custom_op, added), maxlen=0)
