"""The command ``doctor``: what is installed, and whether it works.

Anything that may end the process, such as a broken ONNX Runtime, is tried in a process of its own.
"""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any

from .._ops import plugins
from .._ops.origin import package
from .._releases import TESTED, is_tested, tested
from .._runtime.native.c_api import OLDEST, is_too_old
from . import output
from .output import Answer, answering, progress_console

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
_PLUGIN = "plug-in"
_TIMEOUT = 120
_AT_ONCE = 4


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
    """The result of running a piece of code in a process of its own.

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
        The results of the applicable `PROBES` and of importing each plug-in, by name.
    """

    python: str
    system: str
    versions: Mapping[str, str]
    providers: Mapping[str, list[str]]
    probes: Mapping[str, Probe] = field(default_factory=dict)


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
print(json.dumps("runs"))
"""

PROBES = {
    "onnxruntime": "import json, onnxruntime as o; print(json.dumps([o.__version__, o.get_available_providers()]))",
    "native": f"ENGINE, PROVIDERS = 'native', ['CPUExecutionProvider']\n{_RUN_OP}",
    "extensions": f"ENGINE, PROVIDERS = 'extensions', ['CPUExecutionProvider']\n{_RUN_OP}",
    "cuda": f"ENGINE, PROVIDERS = 'native', ['CUDAExecutionProvider', 'CPUExecutionProvider']\n{_RUN_OP}",
    "numba": "import numba; f = numba.njit(lambda x: x + 1); assert f(1) == 2; print('\"compiles\"')",
    "exporters": "import exporters; print('true')",
    "cupy": "import cupy; assert cupy.arange(3).sum() == 3; print('\"computes on the GPU\"')",
}
_OPTIONAL = {
    "extensions": ("engine extensions", "onnxruntime-extensions", "onnxruntime-extensions", "install it again"),
    "numba": ("compiled kernels", "numba", '"onnx-pyops[compiled]"', "install numba and llvmlite again"),
    "cupy": ("CuPy", "cupy", '"onnx-pyops[cuda]"', "install the CuPy of the CUDA version that nvidia-smi shows"),
    "cuda": (
        "CUDA kernels",
        "onnxruntime-gpu",
        '"onnx-pyops[cuda]", after pip uninstall -y onnxruntime',
        "install the CUDA and cuDNN that this onnxruntime-gpu needs",
    ),
}
"""Probe to the component, the package that it needs, what to install without it, and the fix for a failure."""


def examine() -> Machine:
    """Examine this machine, which takes seconds."""
    known = packages_distributions()
    providers = {module: sorted(set(known.get(module, ()))) for module in _SHARED}
    names = (*PACKAGES, *(name for found in providers.values() for name in found))
    versions = {name: found for name in names if (found := _version(name))}
    needs = {name: needed for name, (_, needed, _, _) in _OPTIONAL.items()} | {"exporters": "torch"}
    tried = {name: code for name, code in PROBES.items() if needs.get(name) in (None, *versions) or providers.get(name)}
    for plugin in plugins.not_imported():
        code = f"import pyops._ops.plugins as p; p.import_for([{plugin.name!r}]); print('\"can be imported\"')"
        tried[f"{_PLUGIN} {package(plugin)}, {plugin.name}"] = code
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        probes = dict(zip(tried, pool.map(probe, tried.values()), strict=True))
    python = f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})"
    return Machine(python, f"{platform.system()} on {platform.machine()}", versions, providers, probes)


def probe(code: str) -> Probe:
    """Run code in a process of its own, and return the last line that it prints, parsed as JSON."""
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        return Probe(failure=f"does not end within {_TIMEOUT} seconds")
    if done.returncode < 0:
        return Probe(failure=f"ends the process ({signal.Signals(-done.returncode).name})")
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
    found.append(_of_probe("engine native", probes["native"], "", without_native))
    for name, (what, needed, install, fix) in _OPTIONAL.items():
        if name in probes:
            found.append(_of_probe(what, probes[name], fix, State.WARNING if name == "extensions" else State.BROKEN))
        else:
            found.append(Finding(what, State.ABSENT, f"{needed} is not installed: pip install {install}"))
    found.append(_exporters(machine))
    fix = "fix or uninstall the package, or set PYOPS_PLUGINS=0"
    return found + [_of_probe(name, probes[name], fix) for name in probes if name.startswith(_PLUGIN)]


def _of_probe(what: str, result: Probe, fix: str, bad: State = State.BROKEN) -> Finding:
    if result.failure:
        return Finding(what, bad, result.failure, fix)
    return Finding(what, State.OK, str(result.answer))


def _onnxruntime(machine: Machine) -> Iterator[Finding]:
    packages, result = machine.providers["onnxruntime"], machine.probes["onnxruntime"]
    reinstall = f"pip install --force-reinstall {' '.join(packages[:1])}"
    if result.failure:
        text = f"cannot be imported: {result.failure}"
        if not packages:
            text = "is not installed: ops can be declared and called, and no session can run them"
            reinstall = 'pip install "onnx-pyops[cpu]", or "onnx-pyops[cuda]" on a machine with an NVIDIA GPU'
        yield Finding("ONNX Runtime", State.BROKEN, text, reinstall)
        return
    number, providers = result.answer
    yield Finding("execution providers", State.OK, ", ".join(providers))
    if is_too_old(number):
        fix = f'pip install "{packages[0]}>={OLDEST}"' if packages else ""
        yield Finding("ONNX Runtime", State.BROKEN, f"{number} is older than {OLDEST}", fix)
    else:
        yield _of_release("ONNX Runtime", "onnxruntime", number)


def _exporters(machine: Machine) -> Finding:
    missing = [name for name in ("torch", "onnxscript") if name not in machine.versions]
    if missing:
        text = f'not installed: {", ".join(missing)}; exporting from PyTorch needs pip install "onnx-pyops[torch]"'
        return Finding("exporters", State.ABSENT, text)
    number, result = machine.versions["torch"], machine.probes["exporters"]
    if result.failure:
        text = f"cannot be imported with torch {number}: {result.failure}"
        return Finding("exporters", State.BROKEN, text, f"{_install_tested('torch')}: {tested('torch')} are tested")
    return _of_release("exporters", "torch", number)


def _of_release(what: str, package: str, number: str) -> Finding:
    """Return the finding for a component that works, with a warning if its release is not a tested one."""
    if is_tested(package, number):
        return Finding(what, State.OK, f"works; {tested(package)} are tested")
    text = f"{package} {number} is not tested; {tested(package)} are"
    return Finding(what, State.WARNING, text, f"where something fails, {_install_tested(package)}")


def _install_tested(package: str) -> str:
    return f'pip install "{package}=={TESTED[package][1]}.*"'


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@answering
def report(as_json: output.Json = False) -> Answer:
    """Report what is installed, which engines work or why not, and how to fix what is broken.

    Each component is tried in a process of its own, including exporters and installed plug-ins. The exit code is 1 if
    something is broken.
    """
    with progress_console().status("trying what is installed"):
        findings = diagnose(examine())
    broken = sum(item.state is State.BROKEN for item in findings)
    rows = [(item.what, item.state, item.found) for item in findings]
    fixes = [f"{item.what}: {item.fix}" for item in findings if item.fix and item.state is not State.OK]
    verdict = f"{broken} broken" if broken else "nothing is broken"
    parts = [[("", "state", "found"), *rows], "", *fixes, verdict]
    return Answer(parts, {"ok": not broken, "findings": list(map(asdict, findings))}, ok=not broken)
