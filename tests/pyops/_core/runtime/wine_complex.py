"""Replaces what the C runtime of Wine lacks by the functions of wine_complex.c; Python runs it when it starts."""

import ctypes
import sys
from pathlib import Path

NAMES = ["real", "imag", "abs", "arg", "exp", "log", "cosh", "sinh", "tanh", "cos", "sin", "tan", "sqrt", "atan", "pow"]
UNIMPLEMENTED = b"\x48\x83\xec\x28\x48\x8d\x0d"  # how the code of such a function begins; it has 24 bytes

if sys.platform == "win32":
    runtime, ours = ctypes.CDLL("ucrtbase"), ctypes.CDLL(str(Path(sys.base_prefix, "wine_complex.dll")))
    for name in ("_FCbuild", *(f"c{name}{end}" for name in NAMES for end in ("", "f", "l"))):
        place, function = (ctypes.cast(library[name], ctypes.c_void_p).value for library in (runtime, ours))
        if ctypes.string_at(place, len(UNIMPLEMENTED)) == UNIMPLEMENTED:
            ctypes.CDLL("kernel32").VirtualProtect(ctypes.c_void_p(place), 16, 0x40, ctypes.byref(ctypes.c_int()))
            # mov rax, function; jmp rax
            ctypes.memmove(place, b"\x48\xb8" + function.to_bytes(8, "little") + b"\xff\xe0", 12)
