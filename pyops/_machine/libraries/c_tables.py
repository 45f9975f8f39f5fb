"""The tables that ``runtime.c`` includes, as C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..._core import AnyOp, Attribute, AttributeKind, Signature, TypeParameter
from ..._support.element_types import DType, dtype_name, ort_code
from ...errors import CompileError
from ..compiled.specialization import AttributeWords, as_arguments
from .object_code import Code

_MOST_TEXT = 1023  # Text in runtime.c has room for one more byte, the NUL

_LATEST = 2**31 - 1
_ANY_TYPE = 0
_KINDS = dict(zip(AttributeKind, "fistFIS", strict=True))


def c_tables(built: Mapping[AnyOp, Sequence[Code]], cpu: str, features: Sequence[Any], description: str) -> str:
    """Return the tables for ops and the machine code of each, with the description of the library."""
    writer = _Writer()
    latest = {op: _last_version(op, built) for op in built}
    for op, codes in built.items():
        attributes = writer.array("Attribute", [writer.attribute(item) for item in op.signature.attributes])
        choices = _choices(op.signature, codes)
        for i, choice in enumerate(choices):
            writer.op(op, choice, attributes, latest[op], len(choices) - i)
    domains: dict[str, list[str]] = {}
    for op in built:
        domains.setdefault(op.domain, []).append(op.name)
    told = [f"{{{_c_text(name)}, {_c_text(' '.join(names))}}}" for name, names in domains.items()]
    spelled = [f"{{\"{name}\", {leaf}u, {part}, '{place}', {bit}}}" for name, (leaf, part, place, bit) in features]
    return "\n".join(
        [
            f"#define CPU {_c_text(cpu)}",
            f"#define HAS_TWO_VERSIONS {int(any(last != _LATEST for last in latest.values()))}",
            *writer.lines,
            f"static Op ops[] = {{\n{''.join(writer.ops)}}};",
            f"static const Domain domains[] = {{{', '.join(told)}}};",
            f"static const char description[] __attribute__((used)) = {_c_text(description)};",
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
    """Return the parts of attributes that machine code depends on, as ``read_attribute`` in runtime.c spells them.

    Raises
    ------
    CompileError
        A library cannot read the text: it is too long, or contains a NUL character.
    """
    text = "".join(f"{_describe(attribute, values[attribute.name])}; " for attribute in attributes)
    if len(text.encode()) > _MOST_TEXT:
        raise CompileError(
            f"a library can read at most {_MOST_TEXT:,} bytes of a node's string attributes; shorten {text[:40]}..."
        )
    if "\0" in text:
        raise CompileError(f"a library cannot read a string with a NUL character; remove it from {text!r}")
    return text


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
        is_text = attribute.kind in (AttributeKind.STRING, AttributeKind.STRINGS)
        words: list[int] = []
        data, allowed = "NULL", "NULL"
        if value is not None and not is_text and not (attribute.is_list and len(value) == 0):
            words = AttributeWords(as_arguments({attribute.name: value}, np.float64)).memory.tolist()
        if isinstance(value, np.ndarray):
            words[0] = 0  # `read_attribute` puts the address of the data there, whose words are aligned for any type
            padded = value.tobytes() + bytes(-value.nbytes % 8)
            data = self.array("int64_t", [_c_int(word) for word in np.frombuffer(padded, np.int64).tolist()] or ["0"])
        choices = (0, 1) if attribute.boolean else attribute.choices
        if choices and attribute.kind is AttributeKind.INT:
            allowed = _c_text(f"|{'|'.join(str(int(choice)) for choice in choices)}|")
        fields = [
            _c_text(attribute.name),
            f"'{_KINDS[attribute.kind]}'",
            int(attribute.required),
            allowed,
            _c_text(_describe(attribute, value)),
            len(words),
            self.array("int64_t", [_c_int(word) for word in words]),
            data,
        ]
        return f"{{{', '.join(map(str, fields))}}}"

    def record(self, op: AnyOp, code: Code) -> str:
        for kind, function in (("Body", code.body), ("Part", code.part), ("Shapes", code.shapes)):
            if function:
                self.lines.append(f"extern {kind} {function};")
        use, cores, loops = code.use, "NULL", 0
        if code.specialization.cores is not None:
            own = code.specialization.cores[: len(use.inputs)]
            cores = self.array("int", own)
            loops = max(item[1] - core for item, core in zip(use.inputs, own, strict=True) if item)
        kinds = [f"{{{ort_code(item[0])}, {item[1]}}}" if item else "{0, -1}" for item in use.inputs]
        described = describe(op.signature.attributes, use.attributes)
        return (
            f"{{{code.body}, {code.part or 'NULL'}, {code.shapes or 'NULL'}, {_c_text(described)}, {len(kinds)}, "
            f"{loops}, {self.array('Kind', kinds)}, {self.array('int', code.specialization.output_ranks or ())}, "
            f"{cores}}}"
        )

    def op(
        self,
        op: AnyOp,
        choice: tuple[dict[TypeParameter, DType], list[Code]],
        attributes: str,
        last: int,
        choices_left: int,
    ) -> None:
        types, codes = choice
        signature = op.signature
        # Fewest loops first: `compute` in runtime.c takes the first record that serves.
        records = self.array("Record", [self.record(op, code) for code in codes])

        def kind(item: Any) -> str:
            dtypes = [types[item.type]] if item.type in types else list(item.type.dtypes)
            return str(ort_code(dtypes[0]) if len(dtypes) == 1 else _ANY_TYPE)

        inputs = [
            f"{{{kind(item)}, {'VARIADIC' if item.variadic else 'OPTIONAL' if item.optional else 'REQUIRED'}}}"
            for item in signature.inputs
        ]
        # Optional, because a model may leave out outputs that it does not use.
        outputs = [f"{{{kind(item)}, {'VARIADIC' if item.variadic else 'OPTIONAL'}}}" for item in signature.outputs]
        fields = [
            f"CUSTOM_OP({self.in_place(signature)})",
            _c_text(op.domain),
            _c_text(op.name),
            op.version,
            last,
            len(inputs),
            len(outputs),
            len(signature.attributes),
            len(codes),
            choices_left,
            self.array("Tensors", inputs),
            self.array("Tensors", outputs),
            attributes,
            records,
        ]
        self.ops.append(f"  {{{', '.join(map(str, fields))}}},\n")

    def in_place(self, signature: Signature) -> str:
        """Return the functions that tell ONNX Runtime which outputs may be in the memory of inputs."""
        if not signature.may_inplace:
            return "NULL, NULL"
        written, read = zip(*signature.may_inplace, strict=True)
        name = f"in_place_{len(self.ops)}"
        self.lines += [
            f"static int {name}_written[] = {{{', '.join(map(str, written))}}};",
            f"static int {name}_read[] = {{{', '.join(map(str, read))}}};",
            f"static size_t {name}(int **inputs, int **outputs) {{",
            f"  return *inputs = {name}_read, *outputs = {name}_written, {len(written)};",
            "}",
        ]
        return f"{name}, release_nothing"


def _c_int(value: int) -> str:
    return "INT64_MIN" if value == -(2**63) else f"{value}LL"
