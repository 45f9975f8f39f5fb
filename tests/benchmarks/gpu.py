"""All that needs a GPU, tests and benchmarks, on one page: ``python tests/benchmarks/gpu.py --output docs/gpu.md``.

Runs the tests marked ``gpu``, traces what a run does on the GPU, and measures CUDA kernels against ONNX Runtime's
own operators, alone and under CUDA graphs. Inputs and outputs lie on the GPU; each figure is the median over rounds
in which all contestants take turns, divided by that of ONNX Runtime. The kernel alone is CuPy's part: the same function
on CuPy arrays, without a session, and the wait for its end. Torch and onnxruntime-extensions need not be
installed; without torch nothing is traced.

With ``--rehearse`` the same happens without a GPU, on a CUDA runtime over host memory: all of it but the figures, which
are then meaningless. ONNX Runtime's own operators cannot run there, so ops of pyops stand in for them.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import json
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
# Not this file's folder, whose modules would stand before packages of their names.
sys.path[0] = str(ROOT)

import numpy as np  # noqa: E402

from tests.gpu.gpus import missing_gpu, missing_provider  # noqa: E402
from tests.gpu.host_cuda import runtime  # noqa: E402

SIZES = (1, 10**4, 10**6, 10**8)
REHEARSED_SIZES = (1, 10**3)
REHEARSED = {"rounds": 3, "seconds": 0.005}
CACHE = ROOT / ".pytest_cache"
LONGEST_ON_HOST = 10**6
COLUMNS = 1000
ALONE, LARGE = 1.1, 10**6
"""How many times ONNX Runtime's own operator may be needed, and from how many elements on."""
REPLAYED = 1.05
NO_GPU = 2
PACKAGES = ("onnxruntime-gpu", "onnxruntime", "cupy-cuda13x", "cupy-cuda12x", "numpy", "torch")
RUNS_TRACED = 10
DEFAULT_STREAM = 7  # as CUPTI counts them


class Contest(NamedTuple):
    """An op of ONNX Runtime's and those that compute the same."""

    name: str
    dtype: Any
    builtin: str
    ours: str
    on_host: str | None = None


CONTESTS = (
    Contest("y = x + 1, float32", np.float32, "Add", "gpu::AddOne", "gpu::AddOneNumPy"),
    Contest("y = x + 1, float16", np.float16, "Add", "gpu::AddOne", "gpu::AddOneNumPy"),
    Contest("QuickGelu", np.float32, "com.microsoft::QuickGelu", "gpu::QuickGelu"),
    Contest("softmax of rows", np.float32, "Softmax", "gpu::Softmax"),
)


def main(arguments: list[str] | None = None) -> int:
    """Run everything, and write the page; return 0 if everything passes, 1 if something fails, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks/gpu.py", description=__doc__)
    parser.add_argument("--output", type=Path, help="file for the page, which is printed by default")
    parser.add_argument("--sizes", type=int, nargs="+", help="elements")
    parser.add_argument("-k", metavar="EXPRESSION", default="", help="which tests, as for pytest")
    parser.add_argument("--rehearse", action="store_true", help="run without a GPU, on a CUDA runtime over host memory")
    options = parser.parse_args(arguments)
    if options.rehearse:
        runtime.start(CACHE / "d" / "host_cuda")
    if missing_gpu():
        print(f"nothing was run, because there is no GPU: {missing_gpu()}", file=sys.stderr)
        return NO_GPU
    lines, failed = page(options.sizes or (REHEARSED_SIZES if options.rehearse else SIZES), options.k)
    text = "\n".join(lines) + "\n"
    if options.output:
        options.output.write_text(text)
    print(text)
    return int(failed)


def page(sizes: Sequence[int], chosen: str) -> tuple[list[str], bool]:
    """The page's lines, and whether anything fails."""
    tests, failed = run_tests(chosen)
    title = "# A rehearsal on host memory, whose figures mean nothing" if runtime.is_loaded() else "# On a GPU"
    lines = [title, "", machine(), "", "## Tests", "", *tests]
    if missing_provider():
        return [*lines, "", f"No session has run: {missing_provider()}."], True
    for section in (trace, contests(sizes, graph=False), contests(sizes, graph=True)):
        more, bad = section()
        lines += ["", *more]
        failed |= bad
    return lines, failed


def machine() -> str:
    """What all of it ran on, and when."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    runtime, driver = cupy.cuda.runtime.runtimeGetVersion(), cupy.cuda.runtime.driverGetVersion()
    packages = []
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            packages.append(f"{package} {version(package)}")
    return (
        f"{properties['name'].decode()}, CUDA {spell(runtime)}, driver for CUDA {spell(driver)}, Python "
        f"{platform.python_version()}, {', '.join(packages)}; {datetime.datetime.now(datetime.UTC):%Y-%m-%d}."
    )


def spell(number: int) -> str:
    """A version of CUDA: 13000 is 13.0."""
    return f"{number // 1000}.{number % 1000 // 10}"


def run_tests(chosen: str) -> tuple[list[str], bool]:
    """Run the tests marked ``gpu``, or some of them."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        # Neither the options of a developer's machine, which name plug-ins, nor its warnings as errors.
        settings = "addopts=", "filterwarnings=default", f"cache_dir={CACHE if runtime.is_loaded() else folder}"
        options = [f"--junitxml={report}", "-k", chosen, *(item for setting in settings for item in ("-o", setting))]
        if runtime.is_loaded():
            options += ["-p", "tests.gpu.host_cuda"]
        command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", str(ROOT / "tests" / "gpu"), *options]
        done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr)
        if not report.exists():
            return [f"pytest ended with status {done.returncode} and no report."], True
        cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    outcomes: dict[str, list[str]] = {"passed": [], "failure": [], "error": [], "skipped": []}
    for case in cases:
        tags = [child.tag for child in case if child.tag in outcomes]
        outcomes[tags[0] if tags else "passed"].append(case.attrib["name"])
    bad = outcomes["failure"] + outcomes["error"]
    lines = [f"{len(outcomes['passed'])} passed, {len(bad)} failed, {len(outcomes['skipped'])} were left out."]
    lines += [f"- failed: `{name}`" for name in bad]
    return lines, bool(bad)


def trace() -> tuple[list[str], bool]:
    """What one run of y = x + 1 does on the GPU, by CUDA's own profiling interface."""
    lines = ["## What one run does", ""]
    if runtime.is_loaded():
        traced = traced_on_host_memory
    else:
        try:
            import torch
        except ImportError:
            return [*lines, "Not traced: torch is not installed."], False
        if not torch.cuda.is_available():
            return [*lines, "Not traced: this torch has no CUDA."], False
        traced = functools.partial(traced_by_torch, torch)
    from tests.gpu.gpu_ops import bound

    lines += [
        "| | kernels | copies to or from the host | other copies | synchronisations | streams |",
        "|---|---|---|---|---|---|",
    ]
    found = {}
    for name, made in (("ONNX Runtime's Add", builtin("Add", np.float32, 1)), ("pyops", ours("gpu::AddOne", 1))):
        binding, _ = bound(made, np.ones(10**6, np.float32))
        made.run_with_iobinding(binding)
        found[name] = counts = traced(made, binding)
        streams = ", ".join(map(str, sorted(counts.streams)))
        lines.append(f"| {name} | {counts.kernels} | {counts.host} | {counts.device} | {counts.waits} | {streams} |")
    theirs, mine = found.values()
    good = not mine.host and DEFAULT_STREAM not in mine.streams and mine.waits <= theirs.waits
    said = "holds" if good else "does NOT hold"
    lines += [
        "",
        f"No copy to or from the host, nothing on the default stream, no waiting but ONNX Runtime's own: {said}.",
    ]
    return lines, not good


class Counts(NamedTuple):
    """Per run."""

    kernels: float
    host: float
    device: float
    waits: float
    streams: set[int]


def traced_on_host_memory(made: Any, binding: Any) -> Counts:
    """Count what a run of a session asks of the CUDA runtime."""
    from tests.gpu.host_cuda.trace import traced

    with traced() as trace:
        made.run_with_iobinding(binding)
    device = sum(copy.startswith("DtoD") for copy in trace.copied)
    # The default stream has another number here.
    streams = {stream or DEFAULT_STREAM for stream in trace.streams}
    return Counts(len(trace.launched), len(trace.copied) - device, device, len(trace.waited), streams)


def traced_by_torch(torch: Any, made: Any, binding: Any) -> Counts:
    """Count what runs of a session do on the GPU."""
    profiler = torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(RUNS_TRACED):
            made.run_with_iobinding(binding)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    counted: Counter[str] = Counter()
    streams = set()
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind in ("kernel", "gpu_memcpy"):
            streams.add(int(event["args"]["stream"]))
        if kind == "kernel":
            counted["kernels"] += 1
        elif kind == "gpu_memcpy":
            counted["device" if "DtoD" in name else "host"] += 1
        elif kind in ("cuda_runtime", "cuda_driver") and "Synchronize" in name:
            counted["waits"] += 1
    kernels, host, device, waits = (counted[k] / RUNS_TRACED for k in ("kernels", "host", "device", "waits"))
    return Counts(kernels, host, device, waits, streams)


def builtin(qualified: str, dtype: Any, rank: int, size: int | None = None, **options: Any) -> Any:
    """A session of ONNX Runtime's own, of an operator of its own; on host memory, ours in its place."""
    if runtime.is_loaded():
        return ours(
            next(contest.ours for contest in CONTESTS if contest.builtin == qualified), rank, dtype, size, **options
        )
    import onnxruntime

    from tests.gpu.gpu_ops import CUDA, cuda_options, one_node

    model = one_node(qualified, dtype, dimensions(rank, size))
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=CUDA, provider_options=cuda_options(**options)
    )


def ours(qualified: str, rank: int, dtype: Any = np.float32, size: int | None = None, **options: Any) -> Any:
    """A session of an op of `tests.gpu.gpu_ops`."""
    from tests.gpu.gpu_ops import one_node, session

    return session(one_node(qualified, dtype, dimensions(rank, size)), **options)


def dimensions(rank: int, size: int | None) -> tuple[Any, ...]:
    """Those of a model's input; under a CUDA graph they are fixed."""
    if size is None:
        return ("n", "m")[:rank]
    return shape(rank, size)


def shape(rank: int, size: int) -> tuple[int, ...]:
    """Of `size` elements; rows have up to 1,000."""
    return (size,) if rank == 1 else (-(-size // COLUMNS), min(size, COLUMNS))


def contests(sizes: Sequence[int], graph: bool) -> Callable[[], tuple[list[str], bool]]:
    """A section with the ratios of every contest."""

    def section() -> tuple[list[str], bool]:
        import warnings

        from pyops._cli.commands import medians

        title = "## Under CUDA graph replay" if graph else "## Against ONNX Runtime's own operators"
        header = "| | elements | ONNX Runtime | pyops | allowed | the kernel alone | NumPy kernel, between copies |"
        lines, failed = [title, "", header, "|---|---|---|---|---|---|---|"], False
        for contest in CONTESTS:
            for size in sizes:
                with warnings.catch_warnings(action="ignore"), cleaned():
                    measured = medians(calls(contest, size, graph), **(REHEARSED if runtime.is_loaded() else {}))
                base = measured.pop("ONNX Runtime")
                ratio = measured["pyops"] / base
                limit = REPLAYED if graph else ALONE if size >= LARGE else None
                exceeded = limit is not None and ratio > limit and not runtime.is_loaded()
                failed |= exceeded
                allowed = "-" if limit is None else f"{limit:.2f}{' EXCEEDED' if exceeded else ''}"
                others = (f"{measured[name] / base:.2f}" if name in measured else "-" for name in ("kernel", "NumPy"))
                cells = contest.name, f"{size:,}", f"{base * 1e6:.1f} µs", f"{ratio:.2f}", allowed, *others
                lines.append(f"| {' | '.join(cells)} |")
        return lines, failed

    return section


@contextlib.contextmanager
def cleaned() -> Iterator[None]:
    """Context manager: free memory afterwards."""
    import gc

    yield
    gc.collect()


def calls(contest: Contest, size: int, graph: bool) -> dict[str, Callable[[], object]]:
    """One call per contestant, with input and output on the GPU."""
    from tests.gpu.gpu_ops import bound

    rank = 2 if contest.builtin == "Softmax" else 1
    x = np.random.default_rng(0).standard_normal(shape(rank, size), np.float32).astype(contest.dtype)
    fixed = size if graph else None
    options = {"enable_cuda_graph": 1} if graph else {}
    sessions = {
        "ONNX Runtime": builtin(contest.builtin, contest.dtype, rank, fixed, **options),
        "pyops": ours(contest.ours, rank, contest.dtype, fixed, **options),
    }
    if contest.on_host and not graph and size <= LONGEST_ON_HOST:
        sessions["NumPy"] = ours(contest.on_host, rank, contest.dtype)
    made: dict[str, Callable[[], object]] = {}
    results = {}
    for name, session in sessions.items():
        binding, results[name] = bound(session, x)
        made[name] = functools.partial(session.run_with_iobinding, binding)
        made[name]()
    expected = results.pop("ONNX Runtime").numpy().astype(np.float64)
    for name, result in results.items():
        tolerance = 1e-3 if contest.dtype is np.float16 else 1e-5
        np.testing.assert_allclose(result.numpy().astype(np.float64), expected, rtol=tolerance, atol=1e-6, err_msg=name)
    if not graph:
        made["kernel"] = kernel_alone(contest.ours, x)
    return made


def kernel_alone(qualified: str, x: np.ndarray[Any, Any]) -> Callable[[], object]:
    """A call of an op's CUDA kernel without ONNX Runtime, which waits for the GPU as a run does."""
    import cupy

    from tests.gpu import gpu_ops

    kernel = next(op for op in gpu_ops.MEASURED if op.signature.qualified_name == qualified).kernels["cuda"]
    given, out = cupy.asarray(x), cupy.empty_like(x)

    def call() -> None:
        kernel(given, out=out)
        cupy.cuda.get_current_stream().synchronize()

    return call


if __name__ == "__main__":
    sys.exit(main())
