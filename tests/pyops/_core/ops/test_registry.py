"""The op that a domain, a name and a version stand for."""

import copy
import importlib
import multiprocessing
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pyops import Op, onnx_op
from pyops._core.ops import op_registry
from pyops.errors import RedeclarationWarning
from pyops.testing import isolated_declarations

F32 = NDArray[np.float32]
ONE = np.ones(1, np.float32)


def declare(factor: int, version: int = 1) -> Op[..., Any]:
    @onnx_op("tests.registry::Scale", version=version)
    def scale(x: F32, *, n: int = 1) -> F32:
        return x * np.float32(factor * n)

    return scale


def declare_with(hint: type, default: float) -> Op[..., Any]:
    @onnx_op("tests.registry::Scale")
    def scale(x: F32, *, n: hint = default) -> F32:  # type: ignore[valid-type]
        return x * np.float32(n)

    return scale


def test_declaring_again_with_an_equal_signature_keeps_the_object_and_takes_the_new_body():
    first = declare(2)
    second = declare(3)
    assert second is first
    assert first(ONE).tolist() == [3]


def test_declaring_again_drops_kernels_and_shape_function_of_the_old_body():
    op = declare(2)
    op.register_shape_inference(lambda x, *, n=1: x)
    op.register_kernel("cuda")(lambda x, *, n=1: x)
    declare(3)
    assert op.shape_function is None
    assert list(op.kernels) == ["cpu"]


def test_declaring_again_drops_what_somebody_noted_on_the_op():
    op = declare(2)
    vars(op)["remark"] = "old"
    declare(3)
    assert not hasattr(op, "remark")


def test_declaring_again_with_another_signature_replaces_the_op_and_leaves_the_old_one_working():
    old = declare_with(int, 2)
    new = declare_with(float, 3.0)
    assert new is not old
    assert op_registry.find_op("tests.registry", "Scale", 1) is new
    assert old(ONE).tolist() == [2]


def test_a_changed_default_is_a_changed_signature():
    assert declare_with(int, 1) is declare_with(int, 1)
    assert declare_with(int, 1) is not declare_with(int, 7)


def test_tensor_defaults_are_compared_by_value():
    def again(value: float) -> Op[..., Any]:
        @onnx_op("tests.registry::Table")
        def look_up(x: F32, *, table: np.ndarray = np.array([value])) -> F32:  # noqa: B008
            return x

        return look_up

    assert again(1) is again(1)
    assert again(1) is not again(2)


def test_versions_stand_side_by_side():
    one, three = declare(1), declare(3, version=3)
    assert op_registry.op_versions("tests.registry", "Scale") == {1: one, 3: three}
    assert (one(ONE).tolist(), three(ONE).tolist()) == ([1], [3])


def test_find_picks_the_highest_version_that_is_not_above_the_opset():
    two, four = declare(2, version=2), declare(4, version=4)
    found = [op_registry.find_op("tests.registry", "Scale", opset) for opset in (1, 2, 3, 4, 9)]
    assert found == [None, two, two, four, four]


def test_an_unknown_operator_is_not_found():
    declare(1)
    assert op_registry.find_op("tests.registry", "Other", 1) is None
    assert op_registry.op_versions("other", "Scale") == {}


def test_latest_and_domains_list_what_is_declared():
    declare(1)
    newest = declare(2, version=2)
    assert newest in op_registry.latest()
    assert [op.version for op in op_registry.latest() if op.name == "Scale" and op.domain == "tests.registry"] == [2]
    assert "tests.registry" in op_registry.op_domains()


def test_an_op_of_a_module_is_pickled_by_its_name(tmp_path, monkeypatch):
    lines = (
        "import numpy as np, pyops",
        "from numpy.typing import NDArray",
        "@pyops.onnx_op('tests.registry::Twice')",
        "def twice(x: NDArray[np.float32]) -> NDArray[np.float32]:",
        "    return x + x",
        "def work(op):",
        "    return op(np.ones(1, np.float32)).tolist()",
    )
    (tmp_path / "pickled_ops.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("pickled_ops")
    assert pickle.loads(pickle.dumps(module.twice)) is module.twice
    assert copy.deepcopy(module.twice) is module.twice
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(module.work, (module.twice,)).get(60) == [2]


def test_a_copy_of_an_op_is_the_op_as_with_functions():
    op = declare(2)
    assert copy.copy(op) is copy.deepcopy([op])[0] is op


DECLARING = """
import numpy as np, pyops
from numpy.typing import NDArray

@pyops.onnx_op("taken::Norm")
def {name}(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x * np.float32({factor})
"""


def import_declaring(folder: Path, module: str, name: str = "norm", factor: int = 1) -> Op[..., Any]:
    """Declare ``taken::Norm`` by a function of a module."""
    (folder / f"{module}.py").write_text(DECLARING.format(name=name, factor=factor))
    importlib.invalidate_caches()
    imported = importlib.import_module(module)
    op: Op[..., Any] = getattr(imported, name)
    return op


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("name", ["norm", "another_norm"])
def test_a_function_of_another_module_that_takes_an_op_over_is_told_with_both_places(folder, name):
    first = import_declaring(folder, "first_ops")
    with pytest.warns(RedeclarationWarning) as caught:
        second = import_declaring(folder, "second_ops", name, 2)
    assert [str(item.message) for item in caught] == [
        f"taken::Norm now refers to {name} of module second_ops (second_ops.py:5) (previously norm of module first_ops "
        "(first_ops.py:5)). Give one of them another name, domain or version, or ignore "
        "pyops.errors.RedeclarationWarning if this is intended"
    ]
    # The line that declares it, which is what Python shows and filters go by.
    assert (caught[0].filename, caught[0].lineno) == (str(folder / "second_ops.py"), 5)
    assert second is first
    assert first(ONE).tolist() == [2]


def test_where_warnings_are_errors_it_does_not_take_the_op_over(folder):
    first = import_declaring(folder, "first_ops")
    with pytest.raises(RedeclarationWarning):
        import_declaring(folder, "second_ops", factor=2)
    assert op_registry.find_op("taken", "Norm", 1) is first
    assert first(ONE).tolist() == [1]


def test_another_function_of_the_same_module_is_told_too():
    def scale_by_two(x: F32) -> F32:
        return x * 2

    declare(1)
    with pytest.warns(RedeclarationWarning, match=r" .*<locals>\.scale_by_two .*previously declare\.<locals>\.scale "):
        onnx_op("tests.registry::Scale")(scale_by_two)


def test_a_function_of_another_version_or_of_ops_that_are_gone_takes_nothing_over(folder):
    with isolated_declarations():
        first = import_declaring(folder, "first_ops")
        del sys.modules["first_ops"]

        @onnx_op("taken::Norm", version=2)
        def other(x: F32) -> F32:
            return x

    assert op_registry.find_op("taken", "Norm", 1) is not first
    import_declaring(folder, "second_ops")


def test_a_module_that_is_imported_again_takes_nothing_over(folder):
    first = import_declaring(folder, "first_ops")
    del sys.modules["first_ops"]
    second = import_declaring(folder, "first_ops", factor=3)
    assert second is first
    (folder / "first_ops.py").write_text(DECLARING.format(name="norm", factor=12345))
    importlib.reload(sys.modules["first_ops"])
    assert first(ONE).tolist() == [12345]


def test_a_script_that_is_imported_too_takes_nothing_over(folder):
    (folder / "script_ops.py").write_text(
        DECLARING.format(name="norm", factor=2)
        + "if __name__ == '__main__':\n    import script_ops\n    print(norm is script_ops.norm)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    command = [sys.executable, "-W", "error", "script_ops.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_the_cells_of_a_notebook_are_one_module():
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    cell = DECLARING.format(name="norm", factor=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shell.run_cell(cell, store_history=True).raise_error()
        shell.run_cell(cell.replace("2)", "4)"), store_history=True).raise_error()
    assert shell.user_ns["norm"](ONE).tolist() == [4]
    with pytest.warns(RedeclarationWarning, match=r" norm_2 of module __main__ .*previously norm of module __main__ "):
        shell.run_cell(cell.replace("norm", "norm_2"), store_history=True).raise_error()
