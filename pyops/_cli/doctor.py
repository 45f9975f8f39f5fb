"""The command ``doctor``: what is installed, and whether it works.

Anything that may end the process, such as a broken ONNX Runtime, is tried in a separate process.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Annotated, Any

import typer

from .._core import are_plugins_enabled, waiting_plugins
from .._machine.libraries.build_report import read_library
from .._support.progress import progress
from .._support.system import described
from .._support.tested_releases import EXCHANGE, OLDEST, TESTED, how_tested, is_older, is_tested, tested
from ..errors import PluginError
from . import output
from .output import Answer, answering

PACKAGES = (
    "onnx-pyops",
    "numpy",
    "ml-dtypes",
    "onnx",
    "onnxruntime-extensions",
    "torch",
    "onnxscript",
    "numba",
)
_SHARED = ("onnxruntime", "cupy")
"""Modules that several packages provide, of which only one may be installed."""
_TIMEOUT = 120
_AT_ONCE = 4
_LAST_EXIT_CODE = 255  # on Windows, greater numbers are exceptions of the system


class State(StrEnum):
    """The state of a finding; only `BROKEN` is a failure."""

    OK = "ok"
    ABSENT = "absent"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """One thing that was examined, its state, and how to fix it."""

    what: str
    state: State
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Probe:
    """The result of running a piece of code in a separate process.

    Attributes
    ----------
    answer : object
        What the code printed, parsed as JSON; None if it failed.
    failure : str
        The last line of its error, or the signal that ended it; empty if it succeeded.
    """

    answer: Any = None
    failure: str = ""


@dataclass(frozen=True)
class Machine:
    """The facts about a machine that `diagnose` uses.

    Attributes
    ----------
    versions : dict of str to str
        The versions of the installed packages.
    providers : dict of str to list of str
        The installed packages that provide each of the modules ``onnxruntime`` and ``cupy``.
    probes : dict of str to Probe
        The results of the applicable `PROBES`, by name.
    plugins : dict of str to Probe
        The results of importing each plug-in, by package and domain.
    libraries : dict of str to Probe
        The results of registering each library that was given; the answer lists what is in it.
    """

    python: str
    system: str
    versions: Mapping[str, str]
    providers: Mapping[str, list[str]]
    probes: Mapping[str, Probe] = field(default_factory=dict)
    plugins: Mapping[str, Probe] = field(default_factory=dict)
    libraries: Mapping[str, Probe] = field(default_factory=dict)


_RUN_OP = """
import json, sys, numpy as np, onnx, pyops
from numpy.typing import NDArray

@pyops.onnx_op("pyops._cli.doctor::Twice", device_types=("cpu", "cuda"))
def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x + x

model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 20, "pyops._cli.doctor": 1]>'
    "doctor (float[n] x) => (float[n] y) { y = pyops._cli.doctor.Twice(x) }"
)
session = pyops.InferenceSession(model, providers=PROVIDERS, engine=ENGINE)
assert session.run(None, {"x": np.ones(3, np.float32)})[0].tolist() == [2.0, 2.0, 2.0]
from pyops._core.runtime.native.borrowing import counts_references
copies = "" if counts_references() else "; kernels get copies, as this Python counts references in another way"
print(json.dumps(f"runs{copies}"))
"""

PROBES = {
    "onnxruntime": "import json, onnxruntime as o; print(json.dumps([o.__version__, o.get_available_providers()]))",
    "native": f"ENGINE, PROVIDERS = 'native', ['CPUExecutionProvider']\n{_RUN_OP}",
    "direct": "import json; from pyops._machine.direct.loaded_code import problem; print(json.dumps(problem()))",
    "exchange": (
        "import json; from pyops._core.runtime.native.op_registration import ort_api; "
        "from pyops._machine.direct.loaded_code import exchange_problem; print(json.dumps(exchange_problem(ort_api())))"
    ),
    "extensions": f"ENGINE, PROVIDERS = 'extensions', ['CPUExecutionProvider']\n{_RUN_OP}",
    "cuda": f"ENGINE, PROVIDERS = 'native', ['CUDAExecutionProvider', 'CPUExecutionProvider']\n{_RUN_OP}",
    "numba": "import json, numba; f = numba.njit(lambda x: x + 1); assert f(1) == 2; print(json.dumps('compiles'))",
    "exporters": "import json, exporters; from exporters._library.row_table import absent; print(json.dumps(absent))",
    "cupy": (
        "import json, cupy; r = cupy.cuda.runtime; n = r.getDeviceCount(); assert cupy.arange(3).sum() == 3; "
        "print(json.dumps([n, r.runtimeGetVersion(), r.driverGetVersion()]))"
    ),
}
_NEEDS = {
    "extensions": "onnxruntime-extensions",
    "numba": "numba",
    "exporters": "torch",
    "cupy": "cupy",
    "cuda": "onnxruntime-gpu",
}


SELFTESTS = ("calls", "in_place", "interrupts", "kept_arrays", "compiled", "processes", "libraries")
"""The functions of the module `selftest` that are run there."""


def examine(libraries: Sequence[Path] = ()) -> Machine:
    """Examine this machine, which takes seconds.

    Parameters
    ----------
    libraries : sequence of Path
        Libraries made by ``pyops build``, to register in a session's options.
    """
    known = packages_distributions()
    providers = {module: sorted(set(known.get(module, ()))) for module in _SHARED}
    names = (*PACKAGES, *(name for found in providers.values() for name in found))
    versions = {name: found for name in names if (found := _version(name))}
    tried = {
        name: code
        for name, code in PROBES.items()
        if name not in _NEEDS or _NEEDS[name] in versions or providers.get(name)
    }
    waiting = {f"{package}, {plugin.name}": _import(plugin.name) for package, plugin in waiting_plugins()}
    given = {str(path): _register(path) for path in libraries}
    codes = tried | waiting | given
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = dict(zip(codes, pool.map(probe, codes.values()), strict=True))
    python, name, machine, number = described()
    system = f"{name} on {machine}, with Python {number}: {how_tested(name, machine, number)}"
    answers = ({name: results[name] for name in part} for part in (tried, waiting, given))
    return Machine(f"{python} ({sys.executable})", system, versions, providers, *answers)


def _import(domain: str) -> str:
    return f"import pyops._core as core; core.import_plugins_for([{domain!r}]); print('true')"


def _register(path: Path) -> str:
    made = read_library(path)
    ops = ", ".join(op.name for op in made.ops)
    said = f"{ops}; for {made.target} ({made.cpu}), ONNX Runtime {made.oldest_onnxruntime} or later"
    return (
        "import json, onnxruntime; "
        f"onnxruntime.SessionOptions().register_custom_ops_library({str(path.absolute())!r}); "
        f"print(json.dumps({said!r}))"
    )


def _tested_here(name: str) -> Finding:
    result = probe(f"from pyops._cli import selftest; selftest.main({name!r})")
    return _of_probe(f"selftest {name}", result, State.BROKEN, "report this, with what pyops doctor says")


def probe(code: str) -> Probe:
    """Run code in a separate process, and return the last line that it prints, parsed as JSON."""
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        return Probe(failure=f"does not finish within {_TIMEOUT} seconds")
    if done.returncode < 0:
        return Probe(failure=f"ends the process ({signal.Signals(-done.returncode).name})")
    if done.returncode > _LAST_EXIT_CODE:
        return Probe(failure=f"ends the process ({done.returncode:#x})")
    if done.returncode:
        return Probe(failure=(done.stderr.strip().splitlines() or ["fails without a message"])[-1])
    try:
        return Probe(json.loads(done.stdout.strip().splitlines()[-1]))
    except (IndexError, ValueError):
        return Probe(failure="prints no result")


def diagnose(machine: Machine) -> list[Finding]:
    """Return the findings for a machine."""
    found = [Finding("Python", State.OK, machine.python), Finding("system", State.OK, machine.system)]
    found += [Finding(name, State.OK, number) for name, number in machine.versions.items()]
    for what, packages in zip(("ONNX Runtime", "CuPy"), map(machine.providers.get, _SHARED), strict=True):
        if packages and len(packages) > 1:
            listed = " and ".join(f"{name} {machine.versions[name]}" for name in packages)
            text = f"{listed} have overwritten each other's files"
            fix = f"pip uninstall -y {' '.join(packages)}, then install the one that fits this machine"
            found.append(Finding(f"one {what}", State.BROKEN, text, fix))
    found += _onnxruntime(machine)
    probes = machine.probes
    extensions = probes.get("extensions")
    # If the other engine can take over, ops still run.
    without_native = State.WARNING if extensions and not extensions.failure else State.BROKEN
    found.append(_of_probe("engine native", probes["native"], without_native))
    if not probes["native"].failure:
        of_calls = "machine code calls plain kernels", "Python calls plain kernels"
        found.append(_of_machine_code("direct calls", probes["direct"], *of_calls, "PYOPS_DIRECT_CALLS"))
        tested_with = "; ".join(f"{name} {', '.join(releases)}" for name, releases in EXCHANGE.items())
        of_results = (
            f"ONNX Runtime takes over what plain kernels return; tested with {tested_with}",
            f"what plain kernels return is copied; this is not needed with {tested_with}",
        )
        found.append(_of_machine_code("exchange", probes["exchange"], *of_results, "PYOPS_EXCHANGE"))
    fix = "pip install --force-reinstall onnxruntime-extensions"
    absent = "onnxruntime-extensions is not installed; the native engine does not need it"
    found.append(_of_probe("engine extensions", extensions, State.WARNING, fix, absent=absent))
    found += _cuda(machine)
    fix = 'pip install --force-reinstall "onnx-pyops[compiled]"'
    absent = 'numba is not installed; kernels with compile=True need pip install "onnx-pyops[compiled]"'
    found.append(_of_probe("compiled kernels", probes.get("numba"), State.BROKEN, fix, absent=absent))
    found += _exporters(machine)
    for name, result in machine.libraries.items():
        found.append(_of_probe(f"library {name}", result, State.BROKEN, "build it for this machine: pyops build"))
    try:
        are_plugins_enabled()
    except PluginError as error:  # no plug-in is at fault
        return [*found, Finding("plug-ins", State.BROKEN, str(error), "unset PYOPS_PLUGINS")]
    for name, result in machine.plugins.items():
        fix = "fix or uninstall the package, or set PYOPS_PLUGINS=0"
        found.append(_of_probe(f"plug-in {name}", result, State.BROKEN, fix, "can be imported"))
    return found


def _of_probe(what: str, result: Probe | None, bad: State, fix: str = "", good: str = "", absent: str = "") -> Finding:
    """Return the finding for a probe: `absent` if there is none, its failure, or `good` (by default its answer)."""
    if result is None:
        return Finding(what, State.ABSENT, absent)
    if result.failure:
        return Finding(what, bad, result.failure, fix)
    return Finding(what, State.OK, good or str(result.answer))


def _of_machine_code(what: str, result: Probe, good: str, instead: str, variable: str) -> Finding:
    """Return the finding for what machine code does where it can; the probe's answer is why it cannot here."""
    if result.answer:
        return Finding(what, State.ABSENT, f"{instead}: {result.answer}")
    return _of_probe(what, result, State.BROKEN, f"set {variable}=0", good)


def _onnxruntime(machine: Machine) -> Iterator[Finding]:
    packages, result = machine.providers["onnxruntime"], machine.probes["onnxruntime"]
    reinstall = f"pip install --force-reinstall {' '.join(packages[:1])}"
    if result.failure:
        text = f"cannot be imported: {result.failure}"
        if not packages:
            text = "is not installed: ops can be declared and called, but no session can run them"
            reinstall = 'pip install "onnx-pyops[cpu]", or "onnx-pyops[cuda]" on a machine with an NVIDIA GPU'
        yield Finding("ONNX Runtime", State.BROKEN, text, reinstall)
        return
    number, providers = result.answer
    yield Finding("execution providers", State.OK, ", ".join(providers))
    if is_older(number, OLDEST):
        fix = f'pip install "{packages[0]}>={OLDEST}"' if packages else ""
        yield Finding("ONNX Runtime", State.BROKEN, f"{number} is older than {OLDEST}", fix)
    elif packages == ["onnxruntime-gpu"] and "CUDAExecutionProvider" not in providers:
        text = "onnxruntime-gpu is installed, but offers no CUDAExecutionProvider"
        yield Finding("ONNX Runtime", State.BROKEN, text, reinstall)
    else:
        yield _of_release("ONNX Runtime", "onnxruntime", number)


def _cuda(machine: Machine) -> Iterator[Finding]:
    result = machine.probes.get("cupy")
    if result is None or result.failure:
        fix = "install the CuPy package of the CUDA version that nvidia-smi shows"
        absent = 'CuPy is not installed; CUDA kernels need pip install "onnx-pyops[cuda]"'
        yield _of_probe("CuPy", result, State.BROKEN, fix, absent=absent)
        return
    devices, runtime, driver = result.answer
    text = f"{devices} GPU, CUDA {_cuda_version(runtime)}, driver for CUDA {_cuda_version(driver)}"
    # A driver supports all CUDA versions of its own major version, and earlier ones.
    if runtime // 1000 > driver // 1000:
        fix = "update the driver, or install the CuPy package of its version"
        yield Finding("CuPy", State.BROKEN, f"{text}: CuPy is newer than the driver", fix)
        return
    yield Finding("CuPy", State.OK, text)
    absent = (
        "run in plain calls and as torch operators; sessions need onnxruntime-gpu: "
        'pip uninstall -y onnxruntime, then pip install "onnx-pyops[cuda]"'
    )
    fix = "install the CUDA and cuDNN that this onnxruntime-gpu needs"
    yield _of_probe("CUDA kernels", machine.probes.get("cuda"), State.BROKEN, fix, "run in sessions", absent)


def _exporters(machine: Machine) -> Iterator[Finding]:
    missing = [name for name in ("torch", "onnxscript") if name not in machine.versions]
    if missing:
        text = f'not installed: {", ".join(missing)}; exporting from PyTorch needs pip install "onnx-pyops[torch]"'
        yield Finding("exporters", State.ABSENT, text)
        return
    number, result = machine.versions["torch"], machine.probes["exporters"]
    if result.failure:
        text = f"cannot be imported with torch {number}: {result.failure}"
        yield Finding("exporters", State.BROKEN, text, f"{_install_tested('torch')}: {tested('torch')} are tested")
        return
    yield _of_release("exporters", "torch", number)
    if result.answer:
        text = f"without {', '.join(result.answer)}, which torch {number} does not have"
        yield Finding("kernel library", State.ABSENT, text)


def _of_release(what: str, package: str, number: str) -> Finding:
    """Return the finding for a component that works, with a warning if its release is not a tested one."""
    if is_tested(package, number):
        return Finding(what, State.OK, f"works; {tested(package)} are tested")
    text = f"{package} {number} is not tested; {tested(package)} are"
    return Finding(what, State.WARNING, text, f"if something fails, {_install_tested(package)}")


def _install_tested(package: str) -> str:
    return f'pip install "{package}=={TESTED[package][1]}.*"'


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@answering
def report(
    libraries: output.GivenLibraries = [],  # noqa: B006
    selftest: Annotated[
        bool,
        typer.Option(
            "--selftest", metavar="", help="Also run the self-test of the native engine, which takes a minute."
        ),
    ] = False,
    as_json: output.Json = False,
) -> Answer:
    """Report what is installed, which engines work or why not, and how to fix what is broken.

    Each component is tried in a separate process, including exporters, installed plug-ins, and the given libraries
    made by pyops build. The exit code is 1 if something is broken.
    """
    with progress("trying what is installed"):
        findings = diagnose(examine(libraries))
    with progress("trying the native engine"), ThreadPoolExecutor(_AT_ONCE) as pool:
        findings += pool.map(_tested_here, SELFTESTS if selftest else ())
    broken = sum(item.state is State.BROKEN for item in findings)
    rows = [(item.what, item.state, item.found) for item in findings]
    fixes = [f"{item.what}: {item.fix}" for item in findings if item.fix and item.state is not State.OK]
    verdict = f"{broken} broken" if broken else "nothing is broken"
    parts = [[("", "state", "found"), *rows], "", *fixes, verdict]
    return Answer(parts, {"ok": not broken, "findings": list(map(asdict, findings))}, ok=not broken)
