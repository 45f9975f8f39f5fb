"""What enters onnxruntime-extensions' registry of Python operators, and how it stays valid there.

The registry is a C++ vector per domain. ONNX Runtime keeps pointers into it, and a vector moves when
it grows, so that no domain that a session may have seen grows beyond the room that it has. Nothing
ever leaves the registry.
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

from ..errors import EngineError
from ..pycustomopdef import DEFAULT_DOMAIN
from ..signature import Signature
from ..types import STRING, DType, element_type

_SCALARS = (np.float32, np.float64, np.bool_, np.int8, np.int16, np.int32, np.int64)
_UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)
CARRIED: tuple[DType, ...] = (*map(np.dtype, (*_SCALARS, *_UNSIGNED)), STRING)
"""The element types that onnxruntime-extensions hands to Python and back; on others it ends the process."""

MOST_CHOICES = 256

lock = threading.RLock()


class Types(NamedTuple):
    """Type codes of an operator's inputs and outputs."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def choices(signature: Signature) -> tuple[Types, ...]:
    """Every choice of an op's type parameters that onnxruntime-extensions carries.

    Each is an operator there: it has no type parameters.
    """
    parameters = signature.type_parameters
    carried = [[dtype for dtype in parameter.dtypes if dtype in CARRIED] for parameter in parameters]
    found = []
    for dtypes in itertools.islice(itertools.product(*carried), MOST_CHOICES + 1):
        chosen = {parameter: _code(dtype) for parameter, dtype in zip(parameters, dtypes, strict=True)}
        inputs = tuple(chosen[item.type] for item in signature.inputs)
        found.append(Types(inputs, tuple(chosen[item.type] for item in signature.outputs)))
    return tuple(found)


def _code(dtype: DType) -> int:
    row = element_type(dtype)
    assert row is not None
    return row.onnx


_numbers = itertools.count()
_places: dict[tuple[tuple[Types, ...], int], str] = {}
_sizes: dict[str, int] = {}
_names: set[tuple[str, str]] = set()


def domains() -> set[str]:
    """The domains that are in the registry by our doing."""
    return set(_sizes)


def contents() -> set[str | tuple[str, str]]:
    """What is in the registry by our doing: domains, and operators by domain and name."""
    return domains() | _names


NODE = "pyops_node"
"""The attribute that tells which node of which session is meant."""

PLACE_TYPE = "Kernel"


def place(types: tuple[Types, ...], target: int) -> str:
    """A domain of its own in which ``Kernel`` has these types; ops of equal types and target share one.

    Such a domain never changes again.
    """
    with lock:
        if (types, target) not in _places:
            domain = f"pyops.extensions{next(_numbers)}"
            _add(domain, [(PLACE_TYPE, item, {NODE: _STRING_CODE}, target) for item in types])
            _places[types, target] = domain
        return _places[types, target]


_STRING_CODE = 8


class Published:
    """An op under its own domain and name, for sessions that are not ours.

    Sessions read types and attributes when they are created, and then keep the id: what is published
    under a name can be exchanged.
    """

    def __init__(self) -> None:
        self._definitions: list[Any] = []

    def show(self, name: tuple[str, str], types: Sequence[Types], attributes: Mapping[str, int], target: int) -> None:
        """Let new sessions see an operator of these types.

        Raises
        ------
        EngineError
            Its domain has no room left.
        """
        missing = [(name[1], item, attributes, target) for item in types[len(self._definitions) :]]
        for definition, item in zip(self._definitions, types, strict=False):
            _define(definition, item, attributes, target)
        self._definitions += _add(name[0], missing)

    def hide(self, target: int) -> None:
        """Let the target have the operator's calls in new sessions."""
        for definition in self._definitions:
            definition.obj_id = target


def reserve(domain: str, count: int) -> None:
    """Make room in a domain that is new: for `count` operators, and some that are declared later.

    Raises
    ------
    EngineError
        Functions declared with onnxruntime-extensions' own ``onnx_op`` are in the domain, more do not fit beside
        them, and sessions live that may be using them.
    """
    with lock:
        size, padding = _size(domain), 0
        if domain in _sizes:
            return
        must_stay = size > 0 and _has_sessions(domain)
        if must_stay and size + count > _capacity(size):
            raise EngineError(
                f"domain {domain!r} holds functions declared with onnxruntime-extensions' own onnx_op, and sessions "
                "that live now may use them; they would end the process if its registry grew. Ask for "
                "pyops.get_library_path() before the first session is created, declare those functions with "
                "pyops.onnx_op too, or use pyops.InferenceSession"
            )
        while not must_stay and _capacity(size + padding) - size - padding < count + _ROOM:
            padding += 1
        _add(domain, [(f"_room_{number}", Types((1,), (1,)), {}, 0) for number in range(padding)])


def _has_sessions(domain: str) -> bool:
    """Whether sessions may be using a domain; ours do not run what others declared from where they declared it."""
    gc.collect()
    kinds = {
        kind
        for kind in {type(item) for item in gc.get_objects()}
        if issubclass(kind, onnxruntime.InferenceSession) and kind.__module__ != "pyops.session"
    }
    return any(type(item) in kinds and domain.encode() in _model_of(item, domain) for item in gc.get_objects())


def _model_of(session: Any, domain: str) -> bytes:
    known = vars(session)
    if known.get("_model_bytes") is not None:
        return bytes(known["_model_bytes"])
    try:
        return Path(known["_model_path"]).read_bytes()
    except (KeyError, TypeError, OSError):  # it cannot be told: the domain may be in it
        return domain.encode()


# An operator in the registry costs a session's creation some ten microseconds.
_ROOM = 62

_Entry = tuple[str, Types, Mapping[str, int], int]


def _add(domain: str, entries: Sequence[_Entry]) -> list[Any]:
    from onnxruntime_extensions import PyCustomOpDef, _ocos

    definitions = []
    size = _size(domain)
    if domain in _sizes and size + len(entries) > _capacity(size):
        raise EngineError(
            f"onnxruntime-extensions' registry has no room left for domain {domain!r}, and living sessions would end "
            "the process if it grew; use pyops.InferenceSession or pyops.register_custom_ops, whose native engine has "
            "no such limit, or start a new process"
        )
    for name, types, attributes, target in entries:
        definition = PyCustomOpDef()
        definition.op_type = f"{domain}::{name}"
        _define(definition, types, attributes, target)
        definitions.append(definition)
    _immortal.extend(definitions)
    # Without a bytecode in between, at which another thread could register a domain that then moves.
    deque(map(_ocos.add_custom_op, definitions), maxlen=0)
    _sizes[domain] = _sizes.get(domain, 0) + len(definitions)
    _names.update((domain, name) for name, *_ in entries)
    return definitions


_immortal: list[Any] = []


def _define(definition: Any, types: Types, attributes: Mapping[str, int], target: int) -> None:
    definition.input_types, definition.output_types = map(list, types)
    definition.attrs = dict(attributes)
    definition.obj_id = target


def _size(domain: str) -> int:
    theirs = getattr(getattr(sys.modules.get("onnxruntime_extensions"), "Opdef", None), "_odlist", {}).values()
    named: Iterable[str] = (str(definition.op_type).rpartition("::")[0] or DEFAULT_DOMAIN for definition in theirs)
    return _sizes.get(domain, 0) + sum(name == domain for name in named)


def _capacity(size: int) -> int:
    """What a vector of `size` elements, added one by one, has room for."""
    capacity = min(size, 1)
    while capacity < size:
        # As the C++ standard libraries of Visual Studio and of the others grow it.
        capacity = max(capacity + 1, capacity * 3 // 2) if sys.platform == "win32" else 2 * capacity
    return capacity
