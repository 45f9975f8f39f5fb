"""CuPy's wheel on another CUDA runtime than the one that is linked into it.

The symbols of that runtime are still in the wheel's symbol table. Each of its functions gets a jump at its start, to
the function of the same name, or to an error that there is none. For Linux on x86-64.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SYMBOL_TABLE, _FUNCTION = 2, 2  # SHT_SYMTAB, STT_FUNC
_READ_WRITE_EXECUTE = 7
_names: list[Any] = []  # of missing functions, which the code refers to


def patch(runtime: Any) -> int:
    """Have CuPy call `runtime`; return how many functions do. CuPy must not have been imported."""
    found = importlib.util.find_spec("cupy_backends")
    if found is None:
        return 0
    (folder,) = found.submodule_search_locations or ()
    (module,) = Path(folder, "cuda", "api").glob("runtime.*.so")
    return _patch(module, runtime)


def _patch(module: Path, runtime: Any) -> int:
    ctypes.CDLL(str(module))  # without running it as a module of Python
    base = _base_address(module.resolve())
    count = 0
    for name, offset, size in _functions(module):
        if name.startswith(("cuda", "__cuda")) and not name.startswith("__cudart"):
            code = _jump(runtime, name)
            if len(code) <= size:
                _overwrite(base + offset, code)
                count += 1
    return count


def _jump(runtime: Any, name: str) -> bytes:
    plain = name.removesuffix("_ptsz").removesuffix("_ptds")  # variants for a default stream per thread
    if hasattr(runtime, plain):
        return _jump_to(getattr(runtime, plain))
    _names.append(ctypes.create_string_buffer(name.encode()))
    return b"\x48\xbf" + struct.pack("<Q", ctypes.addressof(_names[-1])) + _jump_to(runtime.host_cuda_missing)


def _jump_to(function: Any) -> bytes:
    address = ctypes.cast(function, ctypes.c_void_p).value
    return b"\x49\xbb" + struct.pack("<Q", address) + b"\x41\xff\xe3"  # mov r11, address; jmp r11


def _overwrite(address: int, code: bytes) -> None:
    start = address & ~(mmap.PAGESIZE - 1)
    size = -(-(address + len(code) - start) // mmap.PAGESIZE) * mmap.PAGESIZE
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(ctypes.c_void_p(start), ctypes.c_size_t(size), _READ_WRITE_EXECUTE):
        raise OSError(ctypes.get_errno(), "mprotect")
    ctypes.memmove(address, code, len(code))


def _base_address(module: Path) -> int:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return min(int(line.split("-")[0], 16) for line in lines if line.endswith(str(module)))


def _functions(module: Path) -> Iterator[tuple[str, int, int]]:
    """The functions in an ELF file's symbol table: names, offsets and sizes."""
    data = module.read_bytes()
    at, size, count = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names = sections[link][4]
        for symbol in range(offset, offset + length, 24):
            name, info, _, section, value, bytes_ = struct.unpack_from("<IBBHQQ", data, symbol)
            if info & 15 == _FUNCTION and section:
                yield data[names + name : data.index(b"\0", names + name)].decode(), value, bytes_
