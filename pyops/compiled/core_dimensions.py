"""NumPy's notation for what a kernel computes independently: the signature of a generalized ufunc."""

from __future__ import annotations

import re

from ..errors import DeclarationError
from ..signature import Signature

_GROUP = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*)?\)"
_GROUPS = rf"{_GROUP}(?:\s*,\s*{_GROUP})*"


def parse(text: str, signature: Signature) -> tuple[int, ...]:
    """How many core dimensions each input and output has: ``"(n),()->(n)"`` gives 1, 0, 1, if these are declared."""
    name = signature.qualified_name
    if not isinstance(text, str) or not re.fullmatch(rf"\s*{_GROUPS}\s*->\s*{_GROUPS}\s*", text):
        raise DeclarationError(
            f"{name}: parallel={text!r} does not say which dimensions belong together; write them as NumPy does for "
            'generalized ufuncs: "(),()->()" where each element is computed by itself, "(n)->(n)" for rows'
        )
    inputs, outputs = (re.findall(_GROUP, side) for side in text.split("->"))
    for kind, groups, declared in (("inputs", inputs, signature.inputs), ("outputs", outputs, signature.outputs)):
        if any(item.variadic for item in declared):
            raise DeclarationError(f"{name}: parallel is for a fixed number of {kind}; leave it out")
        if len(groups) != len(declared):
            raise DeclarationError(
                f"{name}: parallel={text!r} has {len(groups)} {kind}, {len(declared)} are declared: "
                f"{', '.join(item.name for item in declared)}"
            )
    return tuple(len(re.findall(r"\w+", group)) for group in (*inputs, *outputs))
