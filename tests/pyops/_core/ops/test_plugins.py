"""Ops of installed packages. The first package is the one in docs/plugins.md, built and installed by pip."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.project.test_docs import ROOT

PAGE = (ROOT / "docs" / "plugins.md").read_text()
PREAMBLE = """
import os, sys, warnings
import numpy as np, onnxruntime, pyops
from onnx.reference import ReferenceEvaluator
from tests.helpers.models import chain

x = np.array([1, -3, 2, 0, 0], np.float32)
model = chain("com.example.signal::Envelope")
other = chain("Neg")

def imported(name="signal_ops"):
    return name in sys.modules

def attempt(function, *args):
    try:
        function(*args)
    except pyops.errors.PyopsError as error:
        print(type(error).__name__, error, sep=": ")
        return error
"""


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


EXPECTED = "[1.0, 3.0, 3.0, 3.0, 2.0]"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package of the page is installed."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (source / "pyproject.toml").write_text(block("toml"))
    (source / "signal_ops.py").write_text(block("python"))
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def install(folder: Path, name: str, module: str, code: str, *domains: str) -> Path:
    """Install a package of one module, as pip leaves it behind."""
    (folder / f"{module}.py").write_text(textwrap.dedent(code))
    info = folder / f"{module}-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.5\n")
    lines = [f"{domain} = {module}" for domain in domains]
    (info / "entry_points.txt").write_text("\n".join(["[pyops.ops]", *lines]))
    return folder


def run(script: str, *sites: Path, setting: str | None = None) -> list[str]:
    """What a script prints where these folders are on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYOPS_PLUGINS"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (*sites, ROOT)))
    if setting is not None:
        environment["PYOPS_PLUGINS"] = setting
    command = [sys.executable, "-W", "error", "-c", PREAMBLE + textwrap.dedent(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_session_imports_the_plug_in_when_its_model_needs_it(site: Path) -> None:
    script = """
    print(imported())
    pyops.InferenceSession(other).run(None, {"x": x})
    print(imported())
    print(pyops.InferenceSession(model).run(None, {"x": x})[0].tolist(), imported())
    """
    assert run(script, site) == ["False", "False", f"{EXPECTED} True"]


def test_a_session_of_onnxruntime_has_the_ops_of_every_plug_in(site: Path) -> None:
    script = """
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    print(session.run(None, {"x": x})[0].tolist())
    """
    assert run(script, site) == [EXPECTED]


@pytest.mark.parametrize("argument", ["", "model"])
def test_the_reference_evaluator_has_the_ops_of_plug_ins(site: Path, argument: str) -> None:
    script = f"""
    print(len(pyops.reference_ops(other)), imported())
    print(ReferenceEvaluator(model, new_ops=pyops.reference_ops({argument})).run(None, {{"x": x}})[0].tolist())
    """
    assert run(script, site) == ["0 False", EXPECTED]


def test_a_model_in_ort_format_has_the_ops_of_every_plug_in(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.ort"
    save = f"""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = {str(path)!r}
    options.add_session_config_entry("session.save_model_format", "ORT")
    pyops.InferenceSession(model, options)
    """
    assert run(save, site) == []
    load = f"print(pyops.InferenceSession({str(path)!r}).run(None, {{'x': x}})[0].tolist())"
    assert run(load, site) == [EXPECTED]


def test_the_list_of_ops_names_plug_ins_that_are_not_imported(site: Path) -> None:
    script = """
    print(pyops.list_ops())
    pyops.InferenceSession(model)
    print([op.name for op in pyops.list_ops()], pyops.list_ops().notes)
    """
    assert run(script, site) == [
        "no ops are declared",
        "com.example.signal: provided by signal-ops 1.0, to be imported when a model needs it",
        "['Envelope'] ()",
    ]


def test_the_environment_variable_turns_plug_ins_off(site: Path) -> None:
    script = """
    attempt(pyops.InferenceSession, model)
    pyops.register_custom_ops(onnxruntime.SessionOptions())
    print(pyops.reference_ops(), imported(), pyops.list_ops().notes)
    """
    assert run(script, site, setting="0")[1:] == [
        "  - com.example.signal::Envelope is not declared; signal-ops 1.0 provides this domain, and PYOPS_PLUGINS=0 "
        "keeps it from being imported",
        "[] False ('com.example.signal: provided by signal-ops 1.0, not imported while PYOPS_PLUGINS=0',)",
    ]


def test_another_value_of_the_variable_is_an_error(site: Path) -> None:
    expected = ["PluginError: PYOPS_PLUGINS is 'off'; set it to 0 to import no plug-ins, or to 1 (the default)"]
    assert run("attempt(pyops.InferenceSession, model)", site, setting="off") == expected
    assert run("attempt(pyops.register_custom_ops, onnxruntime.SessionOptions())", site, setting="off") == expected


BROKEN = {
    "raises": ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    "exits": ("raise SystemExit('no licence')", "SystemExit: no licence"),
    "declares wrongly": (
        "import pyops\n@pyops.onnx_op('x')\ndef f(): pass",
        "DeclarationError: onnx_op got 'x' as the operator's name",
    ),
    "raises after declaring": (block("python") + "\nraise OSError('no calibration')", "OSError: no calibration"),
}


@pytest.mark.parametrize(("code", "cause"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plug_in_is_an_error_that_names_its_package(tmp_path: Path, code: str, cause: str) -> None:
    install(tmp_path, "broken-ops", "broken_ops", code, "com.example.signal")
    script = """
    pyops.InferenceSession(other)
    for function in (pyops.InferenceSession, pyops.reference_ops, pyops.InferenceSession):
        error = attempt(function, model)
    print(type(error.__cause__).__name__)
    """
    *errors, name = run(script, tmp_path)
    assert len(errors) == 3
    for error in errors:
        assert error.startswith(
            "PluginError: the installed package broken-ops 2.5 provides the ops of domain 'com.example.signal', "
            f"but cannot be imported (broken_ops: {cause}"
        )
        assert error.endswith("fix or uninstall it, or set PYOPS_PLUGINS=0 to disable plug-ins")
    assert name == cause.partition(":")[0]


@pytest.mark.parametrize("domain", ["com.example.signal", "com.example.second"])
def test_a_session_that_a_plug_in_makes_during_its_import_is_told_so(tmp_path: Path, domain: str) -> None:
    code = f"""
from tests.helpers.models import chain
pyops.InferenceSession(chain("{domain}::Envelope"))
"""
    code = OWN.format(name="Envelope", factor=2) + code
    install(tmp_path, "eager-ops", "eager_ops", code, "com.example.signal", "com.example.second")
    (line,) = run("attempt(pyops.InferenceSession, model)", tmp_path)
    assert (
        f"eager-ops 2.5 provides the ops of domain {domain!r}, but eager_ops is being imported, and its ops are "
        "declared when that ends; let it make the session later, in a function" in line
    )


def test_a_plug_in_that_is_repaired_declares_all_that_it_did_before(tmp_path: Path) -> None:
    (tmp_path / "signal_parts.py").write_text(block("python"))
    code = """
    import os
    import signal_parts
    if "CALIBRATION" not in os.environ:
        raise OSError("no calibration")
    """
    install(tmp_path, "broken-ops", "broken_ops", code, "com.example.signal")
    script = """
    attempt(pyops.InferenceSession, model)
    print([op.name for op in pyops.list_ops()])
    os.environ["CALIBRATION"] = "1"
    print(pyops.InferenceSession(model).run(None, {"x": x})[0].tolist())
    """
    error, *rest = run(script, tmp_path)
    assert error.startswith("PluginError")
    assert rest == ["[]", EXPECTED]


def test_a_plug_in_that_declares_nothing_of_its_domain_is_an_error(tmp_path: Path) -> None:
    code = OWN.format(name="Other", factor=2).replace("com.example.signal", "elsewhere")
    install(tmp_path, "empty-ops", "empty_ops", code, "com.example.signal")
    line, ops = run("attempt(pyops.InferenceSession, model); print(list(pyops.list_ops()))", tmp_path)
    assert ops == "[]"
    assert "empty-ops 2.5 provides the ops of domain 'com.example.signal', but empty_ops declares none of that" in line


@pytest.mark.parametrize("use", ["pyops.register_custom_ops(onnxruntime.SessionOptions())", "pyops.reference_ops()"])
def test_where_nobody_knows_the_model_a_broken_plug_in_is_a_warning(site: Path, tmp_path: Path, use: str) -> None:
    install(tmp_path, "broken-ops", "broken_ops", "1 / 0", "broken")
    script = f"""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        {use}
    print(*[(item.category.__name__, "broken-ops 2.5" in str(item.message), item.filename) for item in caught])
    print([op.name for op in pyops.list_ops()])
    """
    assert run(script, site, tmp_path) == ["('PluginWarning', True, '<string>')", "['Envelope']"]


OWN = """
import numpy as np, pyops
from numpy.typing import NDArray

@pyops.onnx_op("com.example.signal::{name}")
def op(x: NDArray[np.float32], *, width: int = 3) -> NDArray[np.float32]:
    return x * np.float32({factor})
"""


def test_what_is_declared_already_stays(site: Path) -> None:
    script = OWN.format(name="Envelope", factor=2) + (
        """
attempt(pyops.InferenceSession, chain("com.example.signal::Envelope", "com.example.signal::Missing"))
print(imported(), pyops.InferenceSession(model).run(None, {"x": x})[0].tolist(), op(x).tolist())
@pyops.onnx_op("com.example.signal::Envelope")
def op(x: NDArray[np.float32], *, width: int = 3) -> NDArray[np.float32]:
    return -x
print(pyops.InferenceSession(model).run(None, {"x": x})[0].tolist())
"""
    )
    twice, negative = "[2.0, -6.0, 4.0, 0.0, 0.0]", "[-1.0, 3.0, -2.0, -0.0, -0.0]"
    assert run(script, site)[-2:] == [f"True {twice} {twice}", negative]


def test_threads_may_need_a_plug_in_at_once(site: Path) -> None:
    script = """
    import threading
    from concurrent.futures import ThreadPoolExecutor
    sys.setswitchinterval(1e-5)
    start = threading.Barrier(8)
    def make(_):
        start.wait()
        return pyops.InferenceSession(model).run(None, {"x": x})[0].tolist()
    with ThreadPoolExecutor(8) as pool:
        print(*pool.map(make, range(8)), sep="\\n")
    """
    assert run(script, site) == [EXPECTED] * 8


def test_a_plug_in_may_declare_its_own_op_again(tmp_path: Path) -> None:
    code = OWN.format(name="Envelope", factor=2) + OWN.format(name="Envelope", factor=5)
    install(tmp_path, "again-ops", "again_ops", code, "com.example.signal")
    script = 'print(pyops.InferenceSession(model).run(None, {"x": x})[0].tolist())'
    assert run(script, tmp_path) == ["[5.0, -15.0, 10.0, 0.0, 0.0]"]


def test_two_packages_may_provide_one_domain(site: Path, tmp_path: Path) -> None:
    install(tmp_path, "more-ops", "more_ops", OWN.format(name="More", factor=5), "com.example.signal", "another")
    script = """
    both = chain("com.example.signal::More", "com.example.signal::Envelope")
    print(pyops.InferenceSession(both).run(None, {"x": x})[0].tolist())
    """
    assert run(script, site, tmp_path) == ["[5.0, 15.0, 15.0, 15.0, 10.0]"]


def test_no_module_is_imported_for_being_named_in_a_model(tmp_path: Path) -> None:
    for name in ("trap", "com", "Trap"):
        (tmp_path / f"{name}.py").write_text("print('code of the model ran')")
    script = """
    for domain in ("trap", "trap.ops", "com.example.signal", "pyops.ops"):
        trap = chain(f"{domain}::Trap", domains={domain: 1})
        trap.metadata_props.add(key="pyops.ops", value="trap")
        trap.graph.node[0].doc_string = "trap:run"
        for function in (pyops.InferenceSession, pyops.reference_ops):
            try:
                function(trap)
            except pyops.errors.ModelError:
                pass
    print(imported("trap"), imported("Trap"), imported("com"))
    """
    assert run(script, tmp_path) == ["False False False"]


def test_functions_of_the_model_and_operators_of_onnxruntime_need_no_plug_in(tmp_path: Path) -> None:
    install(tmp_path, "greedy-ops", "greedy_ops", "1 / 0", "ai.onnx", "com.microsoft", "local")
    script = """
    import onnx
    from onnx import helper
    from tests.helpers.models import opset_imports
    body = [helper.make_node("Neg", ["a"], ["b"])]
    wrapped = chain("local::Wrapped", "com.microsoft::Gelu")
    wrapped.functions.append(helper.make_function("local", "Wrapped", ["a"], ["b"], body, opset_imports({})))
    print(len(pyops.InferenceSession(wrapped).run(None, {"x": x})))
    """
    assert run(script, tmp_path) == ["1"]
