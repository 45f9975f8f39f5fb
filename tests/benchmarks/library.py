"""Libraries of `pyops.build` against ONNX Runtime's own operators: ``python tests/benchmarks/library.py``.

The kernels, and how they are measured, are those of ``compiled.py``. All are sessions of pyops, so the calls differ
only in the nodes: built-in ones, one with the library, and one that pyops compiles.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import warnings

import compiled
import numpy as np
import onnx
import onnxruntime

import pyops
from pyops import onnx_op


def contestants(name: str, threads: int, library: str) -> dict[str, pyops.InferenceSession]:
    """Sessions of built-in nodes, of the library's kernel and of the one that pyops compiles."""
    _, _, _, call, inputs, output, nodes = compiled.CASES[name]
    made = {}
    for key, body in {"built-in": nodes, "library": f"{{ z = bench.Kernel{call} }}"}.items():
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        if key == "library":
            options.register_custom_ops_library(library)
        text = f'<ir_version: 8, opset_import: ["" : 18, "bench" : 1]> g ({inputs}) => ({output}) {body}'
        made[key] = pyops.InferenceSession(onnx.parser.parse_model(text), options)
    return made | {"compiled": compiled.session(inputs, output, f"{{ z = bench.Kernel{call} }}", threads)}


def measure(cpu: str, sizes: list[int], threads: list[int], rounds: int) -> None:
    """Print the table of ratios."""
    print("| operator | threads | elements | built-in | library | compiled by pyops | library, to that |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (kernel, _, parallel, _, inputs, *_)) in enumerate(compiled.CASES.items()):
            with warnings.catch_warnings(action="ignore", category=pyops.errors.RedeclarationWarning):
                op = onnx_op("bench::Kernel", compile=True, parallel=parallel)(kernel)
            by_row = (lambda x: x.like(shape=x.shape[:-1])) if kernel is compiled.reduce_sum else (lambda x: x)
            op.register_shape_inference(by_row if inputs == compiled.ROWS else lambda x, y: x)
            path = f"{folder}/lib{number}.so"
            if lacking := pyops.build(path, op, cpu=cpu).warnings:
                raise SystemExit("\n".join(lacking))
            for count in threads:
                sessions = contestants(name, count, path)
                for size in sizes:
                    feed = compiled.feed(name, size)
                    calls = {key: functools.partial(made.run, None, feed) for key, made in sessions.items()}
                    results = [call()[0] for call in calls.values()]
                    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-3)
                    found = compiled.fastest(calls, rounds)
                    base, own = found["built-in"], found["library"]
                    ratios = own / base, found["compiled"] / base, own / found["compiled"]
                    cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
                    print(f"| {name} | {count} | {size:,} | {base * 1e6:.1f} µs | {cells} |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks/library.py", description=__doc__)
    parser.add_argument("--cpu", default="native", help="what the library is built for")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(compiled.SIZES), help="elements")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="intra_op_num_threads")
    parser.add_argument("--rounds", type=int, default=compiled.ROUNDS, help="rounds per figure")
    arguments = parser.parse_args()
    measure(arguments.cpu, arguments.sizes, arguments.threads, arguments.rounds)


if __name__ == "__main__":
    main()
