"""The tables that ``runtime.c`` includes, as C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._compiled.specialization import AttributeWords, as_arguments
from .._ops.op import AnyOp
from .._schema.attribute import Attribute, AttributeKind
from .._schema.dtypes import DType, dtype_name, element_type
from .._schema.signature import Signature, TypeParameter
from .machine_code import Code

_LATEST = 2**31 - 1
_ANY_TYPE = 0
_KINDS = dict(zip(AttributeKind, "fistFIS", strict=True))


def c_tables(built: Mapping[AnyOp, Sequence[Code]], cpu: str, features: Sequence[Any]) -> str:
    """Return the tables for ops and the machine code of each."""
    writer = _Writer()
    latest = {op: _last_version(op, built) for op in built}
    for op, codes in built.items():
        attributes = writer.array("Attribute", [writer.attribute(item) for item in op.signature.attributes])
        for choice in _choices(op.signature, codes):
            writer.op(op, choice, attributes, latest[op])
    domains = list(dict.fromkeys(op.domain for op in built))
    spelled = [f'{{"{name}", {leaf}u, {part}, \'{place}\', {bit}}}' for name, (leaf, part, place, bit) in features]
    return "\n".join(
        [
            f"#define CPU {_c_text(cpu)}",
            f"#define HAS_TWO_VERSIONS {int(any(last != _LATEST for last in latest.values()))}",
            *writer.lines,
            f"static Op ops[] = {{\n{''.join(writer.ops)}}};",
            f"static const char *const domains[] = {{{', '.join(map(_c_text, domains))}}};",
            f"static const Feature features[] = {{{', '.join([*spelled, '{0}'])}}};",
            "",
        ]
    )


def most_tensors(built: Mapping[AnyOp, Sequence[Code]]) -> int:
    """Return the largest number of inputs or outputs of a node."""
    codes = [code for codes in built.values() for code in codes]
    declared = [max(len(op.signature.inputs), len(op.signature.outputs)) for op in built]
    return max(1, *declared, *(max(len(c.use.inputs), len(c.specialization.outputs)) for c in codes))


def _last_version(op: AnyOp, ops: Any) -> int:
    later = [o.version for o in ops if (o.domain, o.name) == (op.domain, op.name) and o.version > op.version]
    return min(later) - 1 if later else _LATEST


def _choices(signature: Signature, codes: Sequence[Code]) -> list[tuple[dict[TypeParameter, DType], list[Code]]]:
    """Return the machine code for each choice of types of outputs, which ONNX Runtime must know."""
    found: dict[tuple[DType, ...], tuple[dict[TypeParameter, DType], list[Code]]] = {}
    for code in codes:
        outputs = [item.type for item in signature.outputs]
        types = dict(zip(outputs, code.specialization.outputs, strict=False))
        found.setdefault(tuple(types.values()), (types, []))[1].append(code)
    return list(found.values())


def describe(attributes: Sequence[Attribute], values: Mapping[str, Any]) -> str:
    """Return what machine code depends on of a node's attributes, as ``read_attribute`` in runtime.c spells it."""
    return "".join(f"{_describe(attribute, values[attribute.name])}; " for attribute in attributes)


def _describe(attribute: Attribute, value: Any) -> str:
    name = attribute.name
    if value is None:
        return f"{name}=None"
    match attribute.kind:
        case AttributeKind.STRING:
            return f"{name}={_quoted(value)}"
        case AttributeKind.STRINGS:
            return f"{name}=[{', '.join(map(_quoted, value))}]"
        case AttributeKind.INTS | AttributeKind.FLOATS:
            return f"{name}[{len(value)}]"
        case AttributeKind.TENSOR:
            return f"{name}={dtype_name(value.dtype)}[{value.ndim}]"
    return name


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _c_text(text: str) -> str:
    escaped = (chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(escaped)}"'


def _code(dtype: DType) -> int:
    row = element_type(dtype)
    assert row is not None
    assert row.ort is not None
    return row.ort


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ops: list[str] = []
        self._arrays: dict[str, str] = {}

    def array(self, kind: str, items: Sequence[object]) -> str:
        """Return the name of a constant array; NULL without items."""
        if not items:
            return "NULL"
        text = f"[] = {{{', '.join(map(str, items))}}};"
        key = f"{kind} {text}"
        if key not in self._arrays:
            self._arrays[key] = f"table_{len(self._arrays)}"
            self.lines.append(f"static const {kind} {self._arrays[key]}{text}")
        return self._arrays[key]

    def attribute(self, attribute: Attribute) -> str:
        value = None if attribute.required else attribute.default
        tensor = isinstance(value, np.ndarray)
        given = {} if value is None else as_arguments({attribute.name: value}, np.float64)
        words = AttributeWords({name: item for name, item in given.items() if not isinstance(item, str)})
        numbers = [] if attribute.kind in (AttributeKind.STRING, AttributeKind.STRINGS) or value is None else words.memory.tolist()
        if value is not None and attribute.is_list and not value:
            numbers = []
        data = "NULL"
        if tensor:
            numbers[0] = 0
            # Of words, so that it is aligned for every type.
            padded = value.tobytes() + bytes(-len(value.tobytes()) % 8)
            data = self.array("int64_t", [f"{n}" for n in np.frombuffer(padded, np.int64).tolist()] or ["0"])
        allowed = attribute.choices if attribute.kind is AttributeKind.INT else ()
        allowed = (0, 1) if attribute.boolean else allowed
        text = _describe(attribute, value)
        return (
            f"{{{_c_text(attribute.name)}, '{_KINDS[attribute.kind]}', {int(attribute.required)}, "
            f"{_c_text('|' + '|'.join(map(str, map(int, allowed))) + '|') if allowed else 'NULL'}, {_c_text(text)}, {len(numbers)}, "
            f"{self.array('int64_t', [_c_int(n) for n in numbers])}, {data}}}"
        )

    def record(self, op: AnyOp, code: Code) -> str:
        self.lines.append(f"extern Body {code.body};")
        if code.part:
            self.lines.append(f"extern Part {code.part};")
        use, cores, loops = code.use, "NULL", 0
        if code.specialization.cores is not None:
            own = code.specialization.cores[: len(use.inputs)]
            cores = self.array("int", own)
            loops = max(item[1] - core for item, core in zip(use.inputs, own, strict=True) if item)
        kinds = [f"{{{_code(item[0])}, {item[1]}}}" if item else "{0, -1}" for item in use.inputs]
        described = describe(op.signature.attributes, use.attributes)
        return (
            f"{{{code.body}, {code.part or 'NULL'}, {_c_text(described)}, {len(kinds)}, {loops}, "
            f"{self.array('Kind', kinds)}, {cores}}}"
        )

    def op(self, op: AnyOp, choice: tuple[dict[TypeParameter, DType], list[Code]], attributes: str, last: int) -> None:
        types, codes = choice
        signature = op.signature
        # Fewest loops first: `compute` in runtime.c takes the first record that serves.
        records = self.array("Record", [self.record(op, code) for code in codes])

        def kind(item: Any) -> str:
            dtypes = [types[item.type]] if item.type in types else list(item.type.dtypes)
            return str(_code(dtypes[0]) if len(dtypes) == 1 else _ANY_TYPE)

        inputs = [
            f"{{{kind(item)}, {'VARIADIC' if item.variadic else 'OPTIONAL' if item.optional else 'REQUIRED'}}}"
            for item in signature.inputs
        ]
        # Optional, because a model may leave out outputs that it does not use.
        outputs = [f"{{{kind(item)}, {'VARIADIC' if item.variadic else 'OPTIONAL'}}}" for item in signature.outputs]
        in_place = "NULL, NULL"
        if signature.may_inplace:
            name = f"in_place_{len(self.ops)}"
            pairs = list(zip(*signature.may_inplace, strict=True))
            written, read = (f"static int {name}_{side}[] = {{{', '.join(map(str, column))}}};" for side, column in zip(("out", "in"), pairs, strict=True))
            self.lines += [
                written,
                read,
                f"static size_t {name}(int **inputs, int **outputs) {{",
                f"  return *inputs = {name}_in, *outputs = {name}_out, {len(signature.may_inplace)};",
                "}",
            ]
            in_place = f"{name}, release_nothing"
        self.ops.append(
            f"  {{CUSTOM_OP({in_place}), {_c_text(op.domain)}, {_c_text(op.name)}, {op.version}, {last}, {len(inputs)}, "
            f"{len(outputs)}, {len(signature.attributes)}, {len(codes)}, {self.array('Tensors', inputs)}, "
            f"{self.array('Tensors', outputs)}, {attributes}, {records}}},\n"
        )


def _c_int(value: int) -> str:
    return "INT64_MIN" if value == -(2**63) else f"{value}LL"
