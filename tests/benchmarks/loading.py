"""What loading a model costs: ``python tests/benchmarks/loading.py`` prints a Markdown table of ratios.

Each model is loaded in processes of its own, in turn by a `pyops.InferenceSession` and by ONNX Runtime's own session
with `pyops.register_custom_ops`. Each figure is the median over rounds, divided by that of ONNX Runtime's own session:
the processor time, and the most memory that the process had beyond what it had after the imports and a first session.
"""

from __future__ import annotations

import argparse
import functools
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

import pyops
from pyops import onnx_op
from pyops._support.progress import progress

F32 = NDArray[np.float32]
ROWS, COLUMNS = 10_000, 1_000
TABLE = ROWS * COLUMNS * 4  # bytes


def declare_ops() -> None:
    """Declare the two ops; no import does, as a session of ONNX Runtime warns of one called Add."""

    @onnx_op("load::Plus")
    def plus(x: F32) -> F32:
        """Add 1."""
        return x + 1

    @onnx_op("load::Add")
    def add(x: F32) -> F32:
        """Add 1; a session renames its nodes, so that the model changes."""
        return plus(x)


def lookups(tables: list[TensorProto], op_type: str = "Plus") -> onnx.ModelProto:
    """A model that looks up a row in each table, adds them, and runs the op."""
    nodes = [helper.make_node("Gather", [table.name, "i"], [f"row{k}"]) for k, table in enumerate(tables)]
    nodes += [
        helper.make_node("Sum", [f"row{k}" for k in range(len(tables))], ["sum"]),
        helper.make_node(op_type, ["sum"], ["y"], domain="load"),
    ]
    return model(nodes, helper.make_tensor_value_info("i", TensorProto.INT64, ["n"]), tables)


def model(nodes: list[onnx.NodeProto], given: onnx.ValueInfoProto, tables: list[TensorProto]) -> onnx.ModelProto:
    """A model of these nodes; the last one computes the output."""
    output = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "load", [given], [output], tables)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("load", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def inside(path: Path, op_type: str = "Plus") -> None:
    """400 MB of weights in the model's own file."""
    tables = [
        helper.make_tensor(f"table{k}", TensorProto.FLOAT, [ROWS, COLUMNS], bytes([k]) * TABLE, raw=True)
        for k in range(10)
    ]
    onnx.save_model(lookups(tables, op_type), path)


def beside(path: Path) -> None:
    """2.4 GB of weights in another file, which has holes and takes no space."""
    tables = []
    for k in range(60):
        table = TensorProto(name=f"table{k}", data_type=TensorProto.FLOAT, dims=[ROWS, COLUMNS])
        table.data_location = TensorProto.EXTERNAL
        for key, value in {"location": "weights", "offset": str(k * TABLE), "length": str(TABLE)}.items():
            table.external_data.add(key=key, value=value)
        tables.append(table)
    with path.with_name("weights").open("wb") as file:
        file.truncate(TABLE * len(tables))
    onnx.save_model(lookups(tables), path)


def nodes(path: Path) -> None:
    """20,000 nodes, one in a thousand of the op."""
    chain = []
    for k in range(20_000):
        op_type, domain = ("Plus", "load") if k % 1000 == 0 else (("Sin", "Cos")[k % 2], "")
        chain.append(helper.make_node(op_type, [f"x{k}"], [f"x{k + 1}"], f"node{k}", domain=domain))
    onnx.save_model(model(chain, helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["n"]), []), path)


MODELS: dict[str, Callable[[Path], None]] = {
    "400 MB": inside,
    "400 MB, changed": functools.partial(inside, op_type="Add"),
    "2.4 GB in another file": beside,
    "20,000 nodes": nodes,
}


def load(path: str, by: str) -> None:
    """Load a model, and print the seconds and the megabytes."""
    declare_ops()
    warm_up = model(
        [helper.make_node("Plus", ["x"], ["y"], domain="load")],
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
        [],
    )
    pyops.InferenceSession(warm_up)
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to what there is now
    before, began = memory("VmRSS"), time.process_time()
    options = onnxruntime.SessionOptions()
    if by == "pyops":
        session = pyops.InferenceSession(path, options)
    else:
        session = onnxruntime.InferenceSession(path, pyops.register_custom_ops(options))
    print(time.process_time() - began, memory("VmHWM") - before)
    del session


def memory(name: str) -> float:
    """A figure of this process's memory, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) / 1024


def measured(path: Path, by: str) -> tuple[float, float]:
    """Return the seconds and the megabytes that a process of its own needs."""
    command = [sys.executable, "-W", "ignore", __file__, "--load", str(path), "--by", by]
    seconds, megabytes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), float(megabytes)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks/loading.py", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which models")
    parser.add_argument("--rounds", type=int, default=7, help="loads of each by each")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    parser.add_argument("--by", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        load(arguments.load, arguments.by)
        return
    packages = ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "onnx", "protobuf"))
    print(f"Python {platform.python_version()}, {packages}, {platform.machine()}\n")
    print("| model | ONNX Runtime | memory | pyops | memory |\n|---|---|---|---|---|")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as folder:
            path = base = Path(folder) / "model.onnx"
            MODELS[name](path)
            if "changed" in name:  # ONNX Runtime's own session can have no such op: the same model with another
                base = Path(folder) / "base.onnx"
                inside(base)
            figures: dict[str, list[tuple[float, float]]] = {"onnxruntime": [], "pyops": []}
            with progress(f"loading {name}"):
                for _ in range(arguments.rounds):
                    for by, results in figures.items():
                        results.append(measured(path if by == "pyops" else base, by))
        columns = (zip(*rows, strict=True) for rows in figures.values())
        (seconds, megabytes), ours = (list(map(statistics.median, column)) for column in columns)
        ratios = f"{ours[0] / seconds:.2f} | {ours[1] / megabytes:.2f}"
        print(f"| {name} | {seconds:.2f} s | {megabytes:.0f} MB | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
