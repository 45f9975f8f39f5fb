"""External symbols of machine code: the reasons against some of them; and the symbols of an ELF file."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

_RUNTIME = re.compile(r"llvm\.|NRT_|numba_attempt_nocopy_reshape$|pyops_")
_LIBC = {"memcpy", "memmove", "memset", "memcmp", "malloc", "free", "abort", "snprintf", "strlen", "strtod"}
_MATH = {
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf"),
    *("erfc", "exp", "exp2", "expm1", "fabs", "floor", "fma", "fmax", "fmin", "fmod", "frexp", "hypot", "ldexp"),
    *("lgamma", "log", "log10", "log1p", "log2", "logb", "modf", "nearbyint", "nextafter", "pow", "remainder"),
    *("rint", "round", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc"),
}
_REASONS = (
    (
        r"_?numba_(dict|set|hashsecret|list_)",
        "uses a dict, a typed list or the hash of a string, which only numba has; use arrays, tuples or lists",
    ),
    (r"numba_(xx|ez_|raw_)", "uses linear algebra, which numba takes from SciPy"),
    (r"numba_.*(rnd|random|rng)", "uses numba's random numbers, whose state is in Python"),
    (
        r"_?Py",
        "needs the interpreter: it prints, uses Python objects, or raises an exception with an array among its values, "
        "where a shape, numbers and text can be",
    ),
    ("", "needs functions that only numba has"),
)


def reason_against(names: Iterable[str]) -> str:
    """Return why code that takes these symbols from elsewhere cannot be in a library; empty if it can."""
    unknown = sorted(name for name in names if not _is_known(name))
    if not unknown:
        return ""
    reason = next(reason for pattern, reason in _REASONS if any(re.match(pattern, name) for name in unknown))
    return f"it {reason} ({', '.join(unknown[:5])})"


def _is_known(name: str) -> bool:
    return bool(_RUNTIME.match(name)) or name in _LIBC or name in _MATH or (name[-1:] == "f" and name[:-1] in _MATH)


def elf_symbols(path: Path) -> Iterator[tuple[str, str, bool]]:
    """Iterate over the dynamic symbols of a 64-bit ELF file: name, version needed, and whether it is defined there."""
    data = path.read_bytes()
    offset, count = struct.unpack_from("<Q", data, 0x28)[0], struct.unpack_from("<H", data, 0x3C)[0]
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + 64 * i) for i in range(count)]

    def text(section: int, at: int) -> str:
        begin = sections[section][4] + at
        return data[begin : data.index(b"\0", begin)].decode()

    versions: dict[int, str] = {}
    indexes: list[int] = []
    for _, kind, _, _, at, size, link, info, _, _ in sections:
        if kind == 0x6FFFFFFE:  # SHT_GNU_verneed: files, and the versions that are needed of each
            for _ in range(min(info, size // 16)):
                _, needed, _, aux, following = struct.unpack_from("<HHIII", data, at)
                entry = at + aux
                for _ in range(needed):
                    _, _, index, name, step = struct.unpack_from("<IHHII", data, entry)
                    versions[index] = text(link, name)
                    entry += step
                at += following
        elif kind == 0x6FFFFFFF:  # SHT_GNU_versym
            indexes = list(struct.unpack_from(f"<{size // 2}H", data, at))
    for _, kind, _, _, at, size, link, _, _, _ in sections:
        if kind == 11:  # SHT_DYNSYM
            for i in range(1, size // 24):
                name, _, _, section = struct.unpack_from("<IBBH", data, at + 24 * i)
                version = versions.get(indexes[i] & 0x7FFF, "") if indexes else ""
                yield text(link, name), version, section != 0
