"""Which op a domain, a name and a version stand for."""

import copy
import importlib
import multiprocessing
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyops import Op, onnx_op, registry

F32 = NDArray[np.float32]
ONE = np.ones(1, np.float32)


def declare(factor: int, version: int = 1) -> Op[..., Any]:
    @onnx_op("tests.registry::Scale", version=version)
    def scale(x: F32, *, n: int = 1) -> F32:
        return x * np.float32(factor * n)

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
    old = declare(2)

    @onnx_op("tests.registry::Scale")
    def scale(x: F32, *, n: float = 1.0) -> F32:
        return x * np.float32(n)

    assert scale is not old
    assert registry.find("tests.registry", "Scale", 1) is scale
    assert old(ONE).tolist() == [2]


def test_a_changed_default_is_a_changed_signature():
    old = declare(2)

    @onnx_op("tests.registry::Scale")
    def scale(x: F32, *, n: int = 7) -> F32:
        return x * np.float32(n)

    assert scale is not old


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
    assert registry.versions("tests.registry", "Scale") == {1: one, 3: three}
    assert (one(ONE).tolist(), three(ONE).tolist()) == ([1], [3])


def test_find_picks_the_highest_version_that_is_not_above_the_opset():
    two, four = declare(2, version=2), declare(4, version=4)
    found = [registry.find("tests.registry", "Scale", opset) for opset in (1, 2, 3, 4, 9)]
    assert found == [None, two, two, four, four]


def test_an_unknown_operator_is_not_found():
    declare(1)
    assert registry.find("tests.registry", "Other", 1) is None
    assert registry.versions("other", "Scale") == {}


def test_latest_and_domains_list_what_is_declared():
    declare(1)
    newest = declare(2, version=2)
    assert newest in registry.latest()
    assert [op.version for op in registry.latest() if op.name == "Scale" and op.domain == "tests.registry"] == [2]
    assert "tests.registry" in registry.domains()


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


def test_an_op_of_a_function_is_copied_by_value():
    op = declare(2)
    copied = copy.deepcopy(op)
    declare(3)
    assert (op(ONE).tolist(), copied(ONE).tolist()) == ([3], [2])
