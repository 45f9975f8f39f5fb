"""Generation of the compute callback of a specialization, as Python code for numba to compile.

The code makes arrays of the tensors that it is given, calls the kernel on them, and copies its results to ONNX
Runtime's buffers. See `pyops._machine.memory_layout` for the words that it reads and writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ..._support.element_types import DType
from .. import memory_layout as layout
from ..memory_layout import DATA, DIMS, TENSOR_WORDS, VALUE
from . import callback_parts, intrinsics
from .specialization import Specialization
from .vector_math import MODULES

CODE_NAMES: dict[str, Any] = {
    name: value for module in (intrinsics, callback_parts) for name, value in vars(module).items() if name[0] != "_"
} | MODULES
"""The names that generated code may use, besides the kernel."""

ENTRY = f"""
def entry(state, record, context, tensors, shapes):
    handed = scratch({{words}})
    failures = handed + {8 * layout.SLOTS}
    answer = attempt(body, (state, record, context, tensors, shapes, failures), failures)
    if answer == {layout.PART_FAILED} or load(failures, 0) != 0:
        store(handed, {layout.CONTEXT}, context)
        store(handed, {layout.OUTCOME}, {layout.FAILED})
        store(handed, {layout.OBJECTS}, {{slots}})
        return call(load(state, {layout.PYTHON}), (state, handed + {layout.HANDED}))
    return answer
"""

PART = f"""
def part(job, index):
    if load(job, {layout.JOB_STOPPED}) == 0:
        failure = load(job, {layout.JOB_FAILURES}) + 8 * {layout.SLOT_WORDS} * index
        attempt(part_body, (job, index), failure)
        if load(failure, 0) != 0:
            store(job, {layout.JOB_STOPPED}, 1)
    return 0
"""


def entry_code(specialization: Specialization) -> str:
    """Return the code of ``entry``, which calls ``body`` and lets no exception escape."""
    slots = 1 if specialization.cores is None else 2 * layout.MOST_PARTS
    return ENTRY.format(words=layout.SLOTS + layout.SLOT_WORDS * slots, slots=slots)


class Writer:
    """Writes the code of the functions that ``entry`` and ``part`` call, for one specialization.

    Parameters
    ----------
    computes_shapes : bool
        Whether ``body`` calls ``shape_of`` for the output sizes, rather than being given the ranks and sizes.
    """

    def __init__(self, specialization: Specialization, computes_shapes: bool = False) -> None:
        self.specialization = specialization.stored()
        self.computes_shapes = computes_shapes
        self.lines: list[str] = []
        ranks = [item[1] for item in specialization.inputs if item]
        self.out_ranks = specialization.output_ranks or ()
        # A shape that is given has its rank before its sizes.
        lengths = [rank + (not computes_shapes) for rank in self.out_ranks]
        ends = itertools.accumulate(lengths)
        self.out_sizes = [f"shapes + {8 * (end - rank)}" for end, rank in zip(ends, self.out_ranks, strict=True)]
        # Without a shape function, an output may have any rank that numba supports.
        self.sizes = max([*ranks, *self.out_ranks, 32])

    def add(self, *lines: str) -> None:
        self.lines += [f"    {line}" for line in lines]

    def add_call(self, call: str) -> None:
        """Write a call of a function that returns a status, which is returned unless it is 0."""
        self.add(f"status = {call}", "if status != 0:", "    return status")

    def text(self, head: str) -> str:
        return "\n".join([f"def {head}:", *self.lines])

    def inputs(self) -> None:
        """Write the code that names the tensors and, if asked, computes the output sizes."""
        self.add(f"attributes = load(record, {layout.RECORD_ATTRIBUTES})", f"out_tensor = scratch({TENSOR_WORDS})")
        ranks = [(i, item[1]) for i, item in enumerate(self.specialization.inputs) if item]
        for i, _ in ranks:
            self.add(f"tensor{i} = tensors + {8 * TENSOR_WORDS * i}")
        if self.computes_shapes:
            self.add(f"given = scratch({max(sum(rank for _, rank in ranks), 1)})")
            at = 0
            for i, rank in ranks:
                self.add(f"copy_words(load(tensor{i}, {DIMS}), given + {8 * at}, {rank})")
                at += rank
            self.add(f"shapes = scratch({max(sum(self.out_ranks), 1)})", "shape_of(given, shapes, attributes)")

    def call(self) -> None:
        """Write the code that calls the kernel on the arrays ``x0``, ``x1``, ... and ``out0``, ..."""
        names = [f"x{i}" if item else "None" for i, item in enumerate(self.specialization.inputs)]
        names += ["None"] * self.specialization.missing
        values = [code for _, code in self.specialization.attributes]
        outs = [f"out{i}" for i in range(len(self.specialization.outputs))] if self.specialization.buffers else []
        arguments = ", ".join(map(format_tuple, (names, values, outs)))
        self.add(f"results = kernel({arguments})")

    def body(self) -> str:
        """Return the code of ``body``, which may raise."""
        return self.whole() if self.specialization.cores is None else self.split()

    def whole(self) -> str:
        self.inputs()
        for i, item in enumerate(self.specialization.inputs):
            if item:
                self.add(f"x{i} = {_array(f'tensor{i}', *item)}")
        if self.specialization.buffers:
            self.buffers()
        self.call()
        for i, rank in enumerate(self.out_ranks):
            self.add(
                f"if results[{i}].ndim != {rank} or not fits(results[{i}], {self.out_sizes[i]}):",
                f"    return {layout.MISMATCH}",
            )
        if not self.specialization.buffers:
            self.allocate()
        self.write("write", self.specialization.used)
        self.add("return 0")
        return self.text("body(state, record, context, tensors, shapes, failures)")

    def allocate(self) -> None:
        """Write the code that allocates ``out0``, ... with the shapes of the results."""
        self.add(f"sizes = scratch({self.sizes})")
        for i, dtype in enumerate(self.specialization.outputs[: self.specialization.used]):
            self.add_call(f"allocate_like(state, context, {i}, results[{i}], out_tensor, sizes)")
            self.add(f"out{i} = array_at(load(out_tensor, {DATA}), results[{i}].shape, np.{dtype}, True)")

    def write(self, function: str, count: int) -> None:
        """Write the code that copies results to ``out0``, ..., except those that are there already.

        A result in the memory of an output that is written before it is copied first.
        """
        for i in range(count):
            before = " or ".join(f"overlap(results[{i}], out{j})" for j in range(i))
            self.add(f"result{i} = " + (f"results[{i}].copy() if {before} else results[{i}]" if i else f"results[{i}]"))
        for i in range(count):
            self.add(f"{function}(result{i}, out{i})")

    def buffers(self) -> None:
        """Write the code that makes ``out0``, ... from ONNX Runtime's buffers, or new memory for unused outputs."""
        for i, (dtype, rank) in enumerate(zip(self.specialization.outputs, self.out_ranks, strict=True)):
            sizes = self.out_sizes[i]
            shape = f"tuple_at({sizes}, {rank})"
            if i < self.specialization.used:
                self.add_call(f"allocate(state, context, {i}, {sizes}, {rank}, out_tensor)")
                self.add(
                    f"if load(out_tensor, {VALUE}) != 0:",
                    f"    out{i} = array_at(load(out_tensor, {DATA}), {shape}, np.{dtype}, True)",
                    "else:",
                    f"    out{i} = np.empty({shape}, np.{dtype})",
                )
            else:
                self.add(f"out{i} = np.empty({shape}, np.{dtype})")

    def job(self) -> tuple[list[tuple[str, int, int, int, DType]], int, int]:
        """Return a job's arrays (name, position, rank, loops, dtype), and the loops' position and number."""
        items = [(f"x{i}", item) for i, item in enumerate(self.specialization.inputs)]
        pairs = zip(self.specialization.outputs, self.out_ranks, strict=True)
        items += [(f"out{i}", pair) for i, pair in enumerate(pairs)]
        arrays, at = [], layout.JOB_ARRAYS
        for (name, item), core in zip(items, self.specialization.cores or (), strict=True):
            if item:
                arrays.append((name, at, item[1], item[1] - core, item[0]))
                at += 1 + item[1]
        return arrays, at, arrays[-1][3]

    def split(self) -> str:
        arrays, loops_at, loop_rank = self.job()
        first_output = next(item for item in arrays if item[0] == "out0")
        self.inputs()
        self.buffers()
        self.add(f"job = scratch({loops_at + loop_rank})", f"loops = job + {8 * loops_at}")
        self.add(f"store(job, {layout.JOB_RECORD}, record)")
        self.add(f"store(job, {layout.JOB_FAILURES}, failures)")
        for name, position, rank, _, _ in arrays:
            if name.startswith("x"):
                tensor = f"tensor{name[1:]}"
                address, sizes = f"load({tensor}, {DATA})", f"load({tensor}, {DIMS})"
            else:
                address, sizes = f"{name}.ctypes.data", self.out_sizes[int(name[3:])]
            self.add(f"store(job, {position}, {address})", f"copy_words({sizes}, job + {8 * (position + 1)}, {rank})")
        self.add(f"copy_words(job + {8 * (first_output[1] + 1)}, loops, {loop_rank})", "elements = 0")
        for _, position, rank, own, _ in arrays:
            self.add(
                f"if not loops_over(loops, {loop_rank}, job + {8 * (position + 1)}, {own}):",
                f"    return {layout.MISMATCH}",
                f"elements = max(elements, product(job + {8 * (position + 1)}, {rank}))",
            )
        self.add(
            f"parts = plan(job, loops, {loop_rank}, elements)",
            "if parts == 1:",
            "    return part_body(job, parts - 1)",  # a literal 0 would be another type and compile it again
            # One batch per part, so that threads that are done take over the parts of slower ones.
            f"part = load(record, {layout.PART})",
            f"status = call(load(state, {layout.PARALLEL_FOR}), (context, part, parts, parts, job))",
            # Keeps buffers of ours alive until here.
            *(f"kept = out{i}.size" for i in range(self.specialization.used, len(self.specialization.outputs))),
            f"return {layout.PART_FAILED} if load(job, {layout.JOB_STOPPED}) != 0 else status",
        )
        return self.text("body(state, record, context, tensors, shapes, failures)")

    def part(self) -> str:
        """Return the code of ``part_body``, which calls the kernel on a part of a job."""
        arrays, loops_at, loop_rank = self.job()
        self.add(
            f"attributes = load(load(job, {layout.JOB_RECORD}), {layout.RECORD_ATTRIBUTES})",
            f"loops = job + {8 * loops_at}",
            f"sizes = scratch({self.sizes})",
        )
        for name, position, rank, own, dtype in arrays:
            part = f"part_of(job, index, loops, {loop_rank}, job + {8 * position}, {rank}, {own}, sizes)"
            address = f"load(job, {position}) + {dtype.itemsize} * {part}"
            shape = f"tuple_at(sizes, {rank})"
            self.add(
                f"address = {address}",
                f"{name} = array_at(address, {shape}, np.{dtype}, {name.startswith('out')})",
            )
        self.call()
        self.write("write_part", len(self.specialization.outputs))
        self.add("return 0")
        return self.text("part_body(job, index)")


def format_tuple(items: Sequence[str]) -> str:
    """Return the code of a tuple of these expressions."""
    return f"({' '.join(f'{item},' for item in items)})"


def _array(tensor: str, dtype: DType, rank: int) -> str:
    return f"array_at(load({tensor}, {DATA}), tuple_at(load({tensor}, {DIMS}), {rank}), np.{dtype}, False)"
