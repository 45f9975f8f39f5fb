"""The registry of onnxruntime-extensions: what of an op it supports, and how ops get into it.

It is a C++ vector of operators per domain. ONNX Runtime keeps pointers into it, and a vector moves when it
grows beyond its capacity; a session that then runs ends the process. So a domain gets all that it will need
at once, and nothing ever leaves the registry.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..._schema.dtypes import dtype_name, element_type
from ..._schema.signature import Signature
from ...errors import EngineError
from ..calls.type_choices import type_choices, unsupported_types

INT, STRING = 7, 8
"""Type codes of attributes."""

MOST_OUTPUTS = 256
_MOST_CHOICES = 256

lock = threading.RLock()


class Types(NamedTuple):
    """Type codes of an operator's inputs and outputs."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def obstacles(signature: Signature) -> list[str]:
    """Return what of an op onnxruntime-extensions does not support."""
    found = [f"optional input {item.name!r}" for item in signature.inputs if item.optional]
    found += [f"variadic input {item.name!r}" for item in signature.inputs if item.variadic]
    found += [f"variadic output {item.name!r}" for item in signature.outputs if item.variadic]
    lacking = unsupported_types(signature, "extensions")
    for parameter in signature.type_parameters:
        names = [dtype_name(dtype) for dtype in parameter.dtypes]
        if set(names) <= set(lacking):
            found.append(f"type {' or '.join(names)}")
    if len(signature.outputs) > MOST_OUTPUTS:
        found.append(f"{len(signature.outputs)} outputs ({MOST_OUTPUTS} at most)")
    if not found and len(choices(signature)) > _MOST_CHOICES:
        found.append(f"type parameters, of which there are more than {_MOST_CHOICES} choices")
    return found


def refusal(signature: Signature, reasons: Sequence[str]) -> str:
    """Return one line that says why an op cannot run here, and where it can."""
    listed = ", ".join(reasons)
    return f"{signature.qualified_name}: onnxruntime-extensions cannot carry its {listed}; the native engine can"


def choices(signature: Signature) -> tuple[Types, ...]:
    """Return every choice of an op's type parameters: each is an operator, of which there are no generic ones."""
    found = []
    for choice in itertools.islice(type_choices(signature.type_parameters, "extensions"), _MOST_CHOICES + 1):
        codes = {parameter: row.onnx for parameter, dtype in choice.items() if (row := element_type(dtype))}
        inputs, outputs = (tuple(codes[item.type] for item in items) for items in (signature.inputs, signature.outputs))
        found.append(Types(inputs, outputs))
    return tuple(found)


NODE = "pyops_node"
"""The attribute that tells which node of which session is meant."""

PLACE_TYPE = "Kernel"

_places: dict[tuple[tuple[Types, ...], int], str] = {}


def place(types: tuple[Types, ...], target: int) -> str:
    """Return a domain of its own in which ``Kernel`` has these types; ops of equal types and target share one.

    Such a domain never changes again.
    """
    with lock:
        if (types, target) not in _places:
            domain = f"pyops.extensions{len(_places)}"
            _add([_define(f"{domain}::{PLACE_TYPE}", item, {NODE: STRING}, target) for item in types])
            _places[types, target] = domain
        return _places[types, target]


# A vector that grew one by one beyond 64 operators has room for 94 or more, whether it grows by half (Visual Studio's)
# or doubles; one of them may be onnxruntime-extensions' own. An operator costs the creation of a session some ten
# microseconds.
_PADDED, _MOST = 65, 93

_published: dict[str, dict[str, list[Any]]] = {}


def published_domains() -> set[str]:
    """Return the domains of ops that are in the registry under their own names."""
    return set(_published)


class Operator(NamedTuple):
    """An op as sessions that are not ours see it: they read this when they are created, and keep the target."""

    types: tuple[Types, ...]
    attributes: Mapping[str, int]
    target: int


def publish(domain: str, operators: Mapping[str, Operator]) -> None:
    """Let new sessions see operators under their own names, in place of what has these names now.

    Raises
    ------
    EngineError
        Sessions may be using the domain, and it has no room for as many more.
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
            f"onnxruntime-extensions' registry has no room left for domain {domain!r}, and living sessions would end "
            "the process if it grew; declare all ops before the first pyops.get_library_path(), use "
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
    """Let new sessions that have an operator fail, for want of an attribute that is called like the reason."""
    for definition in _published.get(domain, {}).get(name, ()):
        definition.attrs = {why: INT}


_ONE = Types((1,), (1,))  # a float32 in, a float32 out


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
    # Without a bytecode in between, at which another thread could register a domain that then moves.
    deque(map(_ocos.add_custom_op, definitions), maxlen=0)


def size() -> int:
    """Return how many operators are in the registry by our doing."""
    return len(_immortal)
