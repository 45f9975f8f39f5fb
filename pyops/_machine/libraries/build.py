"""`build`: compiled kernels as a library."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...errors import CompileError, InputError, MissingDependencyError

try:
    import numba as numba
except ImportError as error:
    raise MissingDependencyError(f'{error}; building needs numba: pip install "onnx-pyops[compiled]"') from error

from ... import Op
from ..._core import AnyOp, AttributeKind
from ..._support.element_types import dtype_name
from ..._support.progress import progress, track
from ..compiled.compiled_kernel import CompiledKernel
from .build_report import BuildReport, BuiltOp, description, read_library
from .c_tables import c_tables, describe, most_tensors
from .object_code import Code, aimed_at, compile_use, object_file, shortened
from .specializations import RANKS, Example, Ranks, Use, left_out_types, loop_cores, of_declaration, of_example
from .target_machines import Linker, features, find_linker, find_target, link


def build(
    path: str | os.PathLike[str],
    ops: AnyOp | Sequence[AnyOp] = (),
    *,
    examples: Sequence[Example] = (),
    ranks: Ranks | None = None,
    target: str | None = None,
    cpu: str | None = None,
    linker: Linker | None = None,
    skip_unsupported: bool = False,
) -> BuildReport:
    """Build a custom-op library for ONNX Runtime, which needs no Python, from ops with compiled kernels.

    Any ONNX Runtime of the target loads it with ``register_custom_ops_library``.

    Parameters
    ----------
    path : path
        The path of the library, such as ``libmy_ops.so``.
    ops : Op or sequence of Op
        Declared with ``compile=True``. Each is built for all its element types.
    examples : sequence of pyops.testing.Sample
        Calls of ops. These ops are built for exactly the types, ranks and attributes of their examples.
    ranks : sequence of int or of sequences of int, optional
        The ranks of inputs that ops without an example are built for: all the same, or one for each input. By
        default 1 to 4. Ops with ``parallel=`` and a shape function take any.
    target : str, optional
        ``"linux-x86-64"``, ``"linux-aarch64"``, ...; by default this machine.
    cpu : str, optional
        ``"native"``: the CPU of this machine; results equal those of pyops' sessions bit for bit. Or the oldest kind of
        CPU that the library must run on, such as ``"x86-64-v3"``, the default for x86-64.
    linker : str, optional
        ``"cc"`` or ``"zig"``; by default cc for this machine if it is installed, otherwise zig.
    skip_unsupported : bool
        Whether ops that cannot be built are left out.

    Returns
    -------
    BuildReport
        What the library contains, and what was left out.

    Raises
    ------
    CompileError
        Ops cannot be built; the message names each, its line and the reason.
    InputError
        There is nothing to build, `ops` has something else, or the target, CPU or linker is unknown.
    MissingDependencyError
        There is no C compiler, or no numba.
    OSError
        The library cannot be written.
    PyopsError
        The C compiler fails.

    Examples
    --------
    >>> import numpy as np, onnx, onnxruntime, pyops, tempfile
    >>> from numpy.typing import NDArray
    >>> @pyops.onnx_op("built::Halve", compile=True)
    ... def halve(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x / np.float32(2)
    >>> report = pyops.build(f"{tempfile.mkdtemp()}/libhalve.so", halve, ranks=[1])
    >>> report.ops[0].name, report.ops[0].types
    ('built::Halve', ('float32',))
    >>> options = onnxruntime.SessionOptions()
    >>> options.register_custom_ops_library(report.path)
    >>> model = onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20, "built": 1]>
    ... main (float[n] x) => (float[n] y) { y = built.Halve(x) }''')
    >>> session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    >>> session.run(None, {"x": np.array([3], np.float32)})
    [array([1.5], dtype=float32)]
    """
    wanted = dict.fromkeys([ops] if isinstance(ops, (Op, str)) else ops)
    for op in wanted:
        if not isinstance(op, Op):
            raise InputError(f"ops has {op!r}; expected ops themselves, as in ops=[my_ops.twice]")
    wanted |= dict.fromkeys(example.op for example in examples)
    if not wanted:
        raise InputError("there is nothing to build: give ops, or examples of them")
    aim = find_target(target)
    cpu = cpu or aim.cpu
    needed, machine, compiler = features(aim, cpu), aim.machine(cpu), find_linker(linker, aim)
    work, reasons, warnings = _work(wanted, examples, ranks)
    codes: dict[AnyOp, list[Code]] = {}
    failures: dict[AnyOp, list[tuple[Use, str]]] = {}
    with progress("building"), aimed_at(machine):
        for number, (op, use) in enumerate(track(work, "compiling")):
            if op in reasons:
                continue
            try:
                code = compile_use(op, use, f"pyops_{number}")
            except CompileError as error:
                failures.setdefault(op, []).append((use, str(error)))
                if use.asked:
                    reasons[op] = f"for {use}, {error}"
            else:
                codes.setdefault(op, []).append(code)
    for op, failed in failures.items():
        if op not in reasons and op not in codes:
            reasons[op] = _no_ranks(op, failed)
        elif op not in reasons:
            warnings += [
                f"{op.signature.qualified_name} is not built for {use}: {shortened(reason)}" for use, reason in failed
            ]
    lines = [f"{op.signature.qualified_name} ({op.location}) cannot be built: {text}" for op, text in reasons.items()]
    built = {op: made for op, made in codes.items() if op not in reasons}
    if not built or (reasons and not skip_unsupported):
        raise CompileError("\n".join([*lines, *["leave these out with skip_unsupported=True"] * bool(built)]))
    for op, made in built.items():
        warnings += dict.fromkeys(f"{op.signature.qualified_name}: {text}" for code in made for text in code.warnings)
    whole = object_file([code.module for made in built.values() for code in made], machine)
    said = description(aim.name, cpu, [_built(op, made) for op, made in built.items()], _oldest_onnxruntime(built))
    link(compiler, aim, whole, c_tables(built, cpu, needed, said), most_tensors(built), Path(path))
    return read_library(Path(path), warnings, lines)


def _work(
    ops: Iterable[AnyOp], examples: Sequence[Example], ranks: Ranks | None
) -> tuple[list[tuple[AnyOp, Use]], dict[AnyOp, str], list[str]]:
    """Return what to compile, and the reasons why ops cannot be built, and what else is left out."""
    work: dict[Any, tuple[AnyOp, Use]] = {}
    reasons: dict[AnyOp, str] = {}
    warnings: list[str] = []
    for op in ops:
        name = op.signature.qualified_name
        if not isinstance(op.kernels["cpu"], CompiledKernel):
            reasons[op] = "it has no compiled kernel; declare it with compile=True"
            continue
        given = [example for example in examples if example.op is op]
        try:
            uses = [use for example in given for use in of_example(example)] or list(of_declaration(op, ranks))
            keys = [(op, use.inputs, describe(op.signature.attributes, use.attributes)) for use in uses]
        except CompileError as error:
            reasons[op] = str(error)
            continue
        if not uses:
            reasons[op] = f"no ranks are given for its {len(op.signature.inputs)} inputs"
        if not given and (lacking := left_out_types(op.signature)):
            warnings.append(f"{name} is not built for {', '.join(lacking)}, which numba does not support")
        for key, use in zip(keys, uses, strict=True):
            work.setdefault(key, (op, use))
    return list(work.values()), reasons, warnings


def _no_ranks(op: AnyOp, failed: Sequence[tuple[Use, str]]) -> str:
    """Return why an op cannot be built for any of the ranks that nobody has asked for."""
    reasons = {shortened(reason): use for use, reason in failed}
    text = "; ".join(f"for {use}, {reason}" for reason, use in [*reasons.items()][-3:])
    names = ", ".join(item.name for item in op.signature.inputs)
    if len(reasons) == 1 or loop_cores(op) is not None:
        return text
    ranks = [4, *[2] * (len(op.signature.inputs) - 1)] if len(op.signature.inputs) > 1 else [5]
    option = ",".join(map(str, ranks))
    return (
        f"{text}. Its inputs may need other ranks than {', '.join(map(str, RANKS))}, the same for all: give that "
        f"of each ({names}), as in --ranks {option} or ranks=[{ranks}], a model (--for) or an example"
    )


def _oldest_onnxruntime(ops: Iterable[AnyOp]) -> str:
    ops = list(ops)
    if any(a.kind is AttributeKind.STRINGS for op in ops for a in op.signature.attributes):
        return "1.25"
    return "1.17" if len({(op.domain, op.name) for op in ops}) < len(ops) else "1.16"


def _built(op: AnyOp, codes: Sequence[Code]) -> BuiltOp:
    inputs = [item for code in codes for item in code.use.inputs if item]
    ranks = [
        "any" if code.part else ",".join(str(item[1]) if item else "-" for item in code.use.inputs) for code in codes
    ]
    types = dict.fromkeys(dtype_name(dtype) for dtype, _ in inputs)
    return BuiltOp(op.signature.qualified_name, op.version, tuple(types), tuple(dict.fromkeys(ranks)), len(codes))
