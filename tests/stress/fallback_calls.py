"""Random calls of every torch operator that a model may name, each in a process that may die of it.

``python -m tests.stress.fallback_calls SEED COUNT FILE`` calls the kernels of fallback nodes, and writes a line of JSON
for each call: its number, its operator, and its outcome. The outcome is a digest of the results, the exception, or
the signal that ended the process; SIGPROF is the one for a call that runs longer than 10 seconds of processor time.
``--torch`` calls torch itself, ``--unchecked`` the kernels without checks of their arguments.
``--only NUMBER`` prints a call and makes it in this process.

Half of the calls of an operator are variations of samples of torch's own, which come far into a kernel; the others are
made from the operator's schema alone.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import hashlib
import json
import mmap
import os
import random
import re
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exporters._fallback import allowed_operators, argument_checks, call_encoding, fallback_node
from exporters._torch.private.operators import (
    Argument,
    OpOverload,
    operator_names,
    overloads,
    qualified_name,
    schema_arguments,
)
from exporters._torch.private.tracing import trace_graph
from exporters._torch.private.trees import present_leaves, replace_leaves, tensor_leaves
from exporters._torch.tensors import TORCH_DTYPES, as_onnx_array, sharing_tensor
from tests.operator_coverage.samples import op_database, sample_inputs

SECONDS = 10
"""Of processor time, after which a call counts as hung."""
MEMORY = 2 << 30
"""Bytes that a process may have in addition to what it starts with."""
BATCH = 2000
SAMPLES = 6
"""Of an OpInfo, in each dtype."""

DTYPES = tuple(TORCH_DTYPES.values())
COMMON = (torch.float32, torch.float32, torch.float32, torch.float64, torch.int64, torch.int32, torch.complex64)
INTS = (0, 1, 2, 3, -1, -2, 5, 64, 1000, 2**31 - 1, 2**31, -(2**31), 2**32 + 1, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, 0.5, 1.0, -1.0, 2.0, 1e-30, 1e30, -1e30, 1e300, float("inf"), float("-inf"), float("nan"))
STRINGS = ("", "none", "mean", "sum", "reflect", "same", "valid", "ij,jk->ik", "...ii->i", "fro", "nuc", "\0")
CONSTANTS = {
    "ScalarType": DTYPES,
    "Layout": (torch.strided, torch.strided, torch.sparse_coo, torch.sparse_csr, torch.jagged),
    "MemoryFormat": (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d),
    "Device": (torch.device("cpu"),),
    "Generator": (None,),
}
UNDETERMINED = re.compile("linalg_lstsq|_polynomial_|_pad_circular|binary_cross_entropy")
"""Operators that return uninitialized memory for some arguments, or depend on it, in torch itself."""
Arguments = dict[str, Any]

_PAGE = resource.getpagesize()
_SLOT, _SLOTS = 16 * _PAGE, 64
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Fences:
    """Memory for arrays, each directly before or after a page that nothing may touch."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SLOTS * _SLOT)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        for slot in range(_SLOTS):
            if _LIBC.mprotect(self._bytes.ctypes.data + slot * _SLOT, _PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, arrays: list[np.ndarray[Any, Any]], at_end: bool) -> list[np.ndarray[Any, Any]]:
        """Return copies of the arrays; the next call overwrites them."""
        # The page after a slot is the first of the next.
        placed = [item for item in range(len(arrays)) if item < _SLOTS - 1 and arrays[item].nbytes < _SLOT - _PAGE]
        arrays = list(arrays)
        for slot in placed:
            array = arrays[slot]
            start = (slot + 1) * _SLOT - array.nbytes if at_end else slot * _SLOT + _PAGE
            arrays[slot] = self._bytes[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            arrays[slot][...] = array
        return arrays


@functools.cache
def operators() -> list[OpOverload]:
    """Return every overload that a model may name, in order."""
    found = [item for name in sorted(operator_names()) if name.startswith("aten::") for item in _overloads(name)]
    return [item for item in found if not allowed_operators.reason_against(item, {"aten"})]


def _overloads(name: str) -> list[OpOverload]:
    try:
        return overloads(name)
    except Exception:  # torch's dispatcher knows it, and torch.ops does not
        return []


class _Recorder(torch.fx.Interpreter):
    """Records the calls in a graph, by operator."""

    def __init__(self, graph: Any, found: dict[str, list[Arguments]]) -> None:
        super().__init__(graph)
        self.found = found

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, OpOverload):
            values = dict(zip((item.name for item in schema_arguments(target)), args, strict=False)) | kwargs
            copies = [item.detach().clone() for item in tensor_leaves(values)]
            if all(item.dtype in DTYPES and item.layout is torch.strided for item in copies):
                self.found.setdefault(qualified_name(target), []).append(replace_leaves(values, copies))
        return super().call_function(target, args, kwargs)


@functools.cache
def samples() -> dict[str, list[Arguments]]:
    """Return the calls of operators that torch's samples make."""
    found: dict[str, list[Arguments]] = {}
    for info in op_database():
        for dtype in (torch.float32, torch.int64, torch.complex64):
            if dtype in info.supported_dtypes("cpu"):
                for number, sample in enumerate(_quiet(sample_inputs(info, dtype))):
                    if number < SAMPLES:
                        _record(info.op, ((sample.input, *sample.args), sample.kwargs), found)
    return found


def _quiet(iterator: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from iterator
    except Exception:  # torch has no sample of this dtype
        return


def _record(function: Any, given: Any, found: dict[str, list[Arguments]]) -> None:
    def call(_graph: Any, *tensors: torch.Tensor) -> list[torch.Tensor]:
        args, kwargs = replace_leaves(given, tensors)
        return tensor_leaves(function(*args, **kwargs))

    tensors = [item.detach() for item in tensor_leaves(given)]
    try:
        with torch.no_grad():
            _Recorder(trace_graph(call, *tensors), found).run(*tensors)
    except Exception:  # what torch cannot trace is not recorded
        return


class Generator:
    """Draws the arguments of one call."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(f"{seed}:{number}")
        self.size = self.random.choice([1, 2, 3, 4])

    def call(self, target: OpOverload) -> Arguments:
        declared = schema_arguments(target)
        known = samples().get(qualified_name(target))
        if not known or self.random.random() < 0.4:
            values = {item.name: self.tame(item) for item in declared if not item.has_default or self.one_in(2)}
        else:
            values = dict(self.random.choice(known))
        # One wild argument comes further than several.
        for item in self.random.sample(declared, min(len(declared), self.random.choice([0, 1, 1, 1, 2, 2, 9]))):
            values[item.name] = self.wild(item, values.get(item.name))
        return values

    def one_in(self, count: int) -> bool:
        return self.random.randrange(count) == 0

    def tame(self, item: Argument) -> Any:
        """Return a value that may be valid."""
        type_ = item.type
        if type_.startswith("Optional["):
            if self.one_in(2):
                return None
            type_ = type_[len("Optional[") : -1]
        if type_.startswith("List["):
            count = self.random.choice([1, 1, 2, 2, 3])
            return [self.tame(Argument(item.name, type_[len("List[") : -1], False, False, None)) for _ in range(count)]
        if type_ == "Tensor":
            return self.tensor(self.random.choice(COMMON), self.shape())
        if type_ in CONSTANTS:
            return self.random.choice(CONSTANTS[type_])
        return {
            "int": lambda: self.random.choice([0, 1, 2, 3, -1]),
            "bool": lambda: self.one_in(2),
            "float": lambda: self.random.choice([0.0, 0.5, 1.0, 2.0]),
            "number": lambda: self.random.choice([0, 1, 2, -1, 0.5, 1.5]),
            "str": lambda: self.random.choice(STRINGS),
        }[type_]()

    def shape(self) -> list[int]:
        n = self.size
        return self.random.choice([[n, n], [n, n], [n], [2, n, n], [1, 2, n, n], [1, 2, n, n, n], [2, n], [], [n, 3]])

    def tensor(self, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
        source = torch.Generator().manual_seed(self.random.getrandbits(32))
        high = self.random.choice([2, 4, 50])
        if dtype.is_floating_point or dtype.is_complex:
            return (torch.rand(shape, generator=source, dtype=torch.float64) * high - high / 4).to(dtype)
        return torch.randint(0, high, shape, generator=source).to(dtype)

    def wild(self, item: Argument, value: Any) -> Any:
        """Return a value that is probably invalid, and may be a variation of a valid one."""
        if value is None or self.one_in(12):
            value = self.tame(item)
        if isinstance(value, torch.Tensor):
            return self.changed(value)
        if isinstance(value, (list, tuple)):
            return self.changed_list(item, list(value))
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self.random.choice(FLOATS) if item.type == "number" and self.one_in(3) else self.number(value)
        if isinstance(value, float):
            return self.random.choice(FLOATS)
        return self.tame(item)

    def number(self, value: int) -> int:
        choice = self.random.choice([*INTS, value - 1, value + 1, -value, value * 2])
        return min(max(choice, -(2**63)), 2**63 - 1)

    def changed_list(self, item: Argument, values: list[Any]) -> list[Any]:
        element = Argument(
            item.name, item.type.replace("Optional[", "").replace("List[", "").rstrip("]"), False, False, 0
        )
        match self.random.randrange(6):
            case 0:
                return values[:-1]
            case 1:
                return [*values, *(values[-1:] or [self.tame(element)])]
            case 2:
                return [self.wild(element, value) for value in values]
        if values:
            place = self.random.randrange(len(values))
            values[place] = self.wild(element, values[place])
        return values

    def changed(self, tensor: torch.Tensor) -> torch.Tensor:
        match self.random.randrange(8):
            case 0:
                return tensor.to(self.random.choice(DTYPES))
            case 1:
                return self.reshaped(tensor)
            case 2:
                return self.with_values(self.reshaped(tensor), 3)
            case 3:
                return self.tensor(tensor.dtype, self.shape())
            case 4:
                return self.with_values(tensor, 1)
        return self.with_values(tensor, self.random.choice([2, 3, 10]))

    def reshaped(self, tensor: torch.Tensor) -> torch.Tensor:
        match self.random.randrange(6):
            case 0:
                return tensor.unsqueeze(0)
            case 1:
                return tensor[..., None]
        if tensor.dim() == 0:
            return tensor.expand(self.size)
        dim = self.random.randrange(tensor.dim())
        match self.random.randrange(4):
            case 0:
                return tensor.narrow(dim, 0, 0)
            case 1:
                return tensor.select(dim, 0) if tensor.shape[dim] else tensor.squeeze(dim)
            case 2:
                return torch.cat([tensor, tensor], dim)
        return tensor.narrow(dim, 0, min(1, tensor.shape[dim]))

    def with_values(self, tensor: torch.Tensor, rarity: int) -> torch.Tensor:
        """Return a copy in which one element of `rarity`, on average, is a special one."""
        array = np.array(as_onnx_array(tensor), order="C")
        flat, kind = array.reshape(-1), array.dtype.kind
        special: list[Any]
        if kind in "iu":
            limits = np.iinfo(array.dtype)
            special = [limits.min, limits.max, -1, 0, 1, 2, 100, 10**6, 2**31, *tensor.shape]
            special = [item for item in special if limits.min <= item <= limits.max]
        else:
            special = [0, 1] if kind == "b" else list(FLOATS)
            special = self.random.sample(special, min(len(special), self.random.choice([1, 1, 3, 12])))
        with np.errstate(all="ignore"):
            for place in self.random.sample(range(flat.size), min(flat.size, 1000)):
                if self.one_in(rarity):
                    flat[place] = self.random.choice(special)
        result = sharing_tensor(array)
        return torch.view_as_complex(result) if tensor.is_complex() else result


def digest(target: OpOverload, results: list[Any]) -> str:
    """Return a short text that differs between results; of random and uninitialized ones it tells the shapes."""
    found = hashlib.sha256()
    arbitrary = allowed_operators.is_arbitrary(target) or UNDETERMINED.search(qualified_name(target))
    for array in results:
        found.update(f"{array.dtype}{array.shape}".encode())
        if not arbitrary:
            plain = array if array.dtype.kind in "iub" else array.astype(np.float64)
            found.update(np.where(np.isnan(plain), np.nan, plain).tobytes())
    return found.hexdigest()[:16]


def outcome(target: OpOverload, values: Arguments, how: str, fences: Fences, at_end: bool) -> list[Any]:
    """Call the operator, and return what came of it."""
    tensors = tensor_leaves(values)
    arrays = fences.place([as_onnx_array(item) for item in tensors], at_end)
    try:
        text = call_encoding.encode(values, tensors, [call_encoding.tag(item) for item in tensors])
    except Exception as error:
        return ["no call", str(error)[:200]]
    torch.manual_seed(0)
    try:
        if how == "torch":
            # In the same places, because the last digit of a product depends on them.
            given = [
                torch.view_as_complex(sharing_tensor(array)) if tensor.is_complex() else sharing_tensor(array)
                for array, tensor in zip(arrays, tensors, strict=True)
            ]
            with torch.no_grad():
                results = present_leaves(fallback_node._call(target, replace_leaves(values, given)))
            results = [fallback_node._array(target, item, ()) for item in results]
        else:
            results = list(fallback_node.run(target, text, arrays))
        return ["answer", digest(target, results)]
    except BaseException as error:
        return ["refused" if type(error).__name__ == "InputError" else "error", type(error).__name__, str(error)[:200]]


def make(seed: int, number: int) -> tuple[OpOverload, Arguments]:
    """Return a call."""
    target = operators()[number % len(operators())]
    return target, Generator(seed, number).call(target)


def work(seed: int, first: int, last: int, how: str, file: int) -> None:
    """Make calls in this process, and write a line for each of them."""
    # SIGPROF ends the process.
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    fences = Fences()
    for number in range(first, last):
        target, values = make(seed, number)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        done = outcome(target, values, how, fences, number % 3 > 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(file, (json.dumps([number, qualified_name(target), *done]) + "\n").encode())


def run(seed: int, first: int, last: int, how: str = "kernel") -> Iterator[list[Any]]:
    """Make calls in forks of this process, and yield the number, the operator and the outcome of each."""
    operators(), samples()
    while first < last:
        stop = min(last, first + BATCH)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                work(seed, first, stop, how, writer)
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as lines:
            for line in lines:
                yield json.loads(line)
                first += 1
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if first < stop:
            name = qualified_name(operators()[first % len(operators())])
            yield [first, name, "died", signal.Signals(-code).name if code < 0 else code]
            first += 1


def main() -> None:
    if os.environ.get("PYTHONHASHSEED") != "0":  # some of torch's samples come in the order of a set
        os.execve(sys.executable, sys.orig_argv, os.environ | {"PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("file", type=Path, nargs="?", default=os.devnull)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--torch", dest="how", action="store_const", const="torch", default="kernel")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # a fork would wait for the others for ever
    if given.unchecked:
        argument_checks.check = lambda *_: None
    if given.only is not None:
        target, values = make(given.seed, given.only)
        torch.set_printoptions(threshold=50)
        print(target, values, sep="\n", flush=True)
        print(outcome(target, values, given.how, Fences(), given.only % 3 > 0))
        return
    start, counts = time.monotonic(), dict.fromkeys(("answer", "error", "refused", "no call", "died"), 0)
    with given.file.open("w") as file:
        for line in run(given.seed, given.first, given.first + given.count, given.how):
            counts[line[2]] += 1
            print(json.dumps(line), file=file)
            if line[2] == "died":
                print(*line, flush=True)
    print(counts, f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
