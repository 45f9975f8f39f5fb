"""What importing pyops loads, and what works without optional packages."""

import pkgutil

import pytest

import pyops
from tests.helpers.scripts import run_plain_script

HEAVY = (
    "onnxruntime",
    "torch",
    "onnxscript",
    "onnxruntime_extensions",
    "cupy",
    "numba",
    "array_api_compat",
    "scipy",
    "exporters",
)
# Of Python's own: together they take longer to import than what a declaration needs of pyops.
SLOW = ("importlib.metadata", "pathlib", "email", "zipfile", "hashlib", "html", "difflib")
# What compiles kernels; everything else of pyops imports it inside functions, when there is something to compile.
OF_NUMBA = {
    f"pyops._machine.compiled.{name}"
    for name in (
        "callback_parts",
        "callback_source",
        "compilation",
        "disk_cache",
        "half_precision",
        "intrinsics",
        "numpy_corrections",
        "read_only_inputs",
        "text_of_values",
        "vector_math",
    )
} | {f"pyops._machine.libraries.{name}" for name in ("build", "c_tables", "object_code", "shape_functions")}

# Makes packages look as if they were not installed.
BLOCK = """
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""

DECLARE = """
import numpy as np
import pyops
from numpy.typing import NDArray

@pyops.onnx_op("imports::Op")
def op(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x + 1

print(op(np.ones(2, np.float32)).tolist())
"""


def module_names() -> list[str]:
    names = [module.name for module in pkgutil.walk_packages(pyops.__path__, "pyops.")]
    return [name for name in names if not name.endswith("__main__")]


def test_importing_pyops_and_calling_an_op_loads_none_of_the_heavy_packages() -> None:
    script = f"import sys\n{DECLARE}\nprint([name for name in {HEAVY} if name in sys.modules])"
    run_plain_script(script, "[2.0, 2.0]\n[]")


def test_importing_pyops_loads_what_registers_the_satellites_and_nothing_else() -> None:
    own = ["pyops", "pyops._core", "pyops._core.satellites", "pyops._wiring"]
    script = "import sys, pyops; print(sorted(name for name in sys.modules if name.startswith('pyops')))"
    run_plain_script(script, str(own))


def test_a_declaration_loads_none_of_python_s_slow_modules() -> None:
    before = "import sys, numpy, numpy.typing\nbefore = set(sys.modules)"
    after = f"print([name for name in {SLOW} if name in sys.modules.keys() - before])"
    run_plain_script(f"{before}\n{DECLARE}\n{after}", "[2.0, 2.0]\n[]")


def test_no_module_of_pyops_imports_what_only_some_kernels_need() -> None:
    forbidden = tuple(name for name in HEAVY if name != "onnxruntime")
    names = [name for name in module_names() if name not in OF_NUMBA]
    library = [name for name in names if name.startswith("pyops.kernels")]  # which nothing else imports
    script = "\n".join(
        ["import sys"]
        + [f"import {name}" for name in names if name not in library]
        + [f"print([name for name in {forbidden} if name in sys.modules])"]
        + [f"import {name}" for name in library]
        + [f"print([name for name in {forbidden} if name in sys.modules and name != 'array_api_compat'])"]
    )
    run_plain_script(script, "[]\n[]")


def test_the_modules_that_are_walked_are_all_there() -> None:
    assert {
        "pyops._core.runtime.inference_session",
        "pyops._core.runtime.native.op_registration",
        "pyops._core.schema.signature",
    } <= set(module_names())


def test_ops_are_declared_and_called_where_onnxruntime_is_not_installed() -> None:
    run_plain_script(f"BLOCKED = {HEAVY}\n{BLOCK}\n{DECLARE}", "[2.0, 2.0]")


@pytest.mark.parametrize(
    "use",
    [
        "pyops.InferenceSession('model.onnx')",
        "pyops.register_custom_ops(None)",
        "pyops.patch_onnxruntime()",
        "import pyops._core.runtime.inference_session",
    ],
)
def test_a_session_says_which_extra_to_install_where_onnxruntime_is_not(use: str) -> None:
    script = f"""
BLOCKED = {HEAVY}
{BLOCK}
import pyops
try:
    {use}
except pyops.errors.MissingDependencyError as error:
    text = str(error)
    print(isinstance(error, ImportError), "onnx-pyops[cpu]" in text, "onnx-pyops[cuda]" in text, "pip install" in text)
"""
    run_plain_script(script, "True True True True")


@pytest.mark.parametrize("missing", [["torch"], ["onnxscript"], ["torch", "onnxscript"]])
def test_exporters_say_what_they_need_and_the_extra_that_brings_it(missing: list[str]) -> None:
    script = f"""
BLOCKED = [*{missing}, "onnx_ir"]
{BLOCK}
for name in ("onnxscript", "torch"):
    if name not in BLOCKED:
        sys.modules[name] = type(sys)(name)  # stands for it where it is not installed
try:
    import exporters
except ImportError as error:
    print(type(error).__name__, error.name, error)
"""
    named = f"{missing[0]} is" if len(missing) == 1 else f"{missing[0]} and {missing[1]} are"
    text = f'exporters needs torch and onnxscript; {named} not installed: pip install "onnx-pyops[torch]"'
    run_plain_script(script, f"MissingDependencyError {missing[0]} {text}")


def test_a_session_of_other_ops_does_not_load_onnxruntime_extensions() -> None:
    script = f"""
import sys
{DECLARE}
from tests.helpers.models import chain
print(pyops.InferenceSession(chain("imports::Op")).run(None, {{"x": np.ones(1, np.float32)}})[0].tolist())
print([name for name in ("torch", "onnxscript", "onnxruntime_extensions", "cupy") if name in sys.modules])
"""
    run_plain_script(script, "[2.0, 2.0]\n[2.0]\n[]")


def test_an_unknown_name_of_pyops_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'InferenceSesion'"):
        _ = pyops.InferenceSesion


@pytest.mark.parametrize("name", pyops.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(pyops, name) is not None
