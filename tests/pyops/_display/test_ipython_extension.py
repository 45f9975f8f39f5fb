"""`%load_ext pyops`, in an IPython shell in this process and in a real kernel."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import pyops

DECLARE = """
import numpy as np
from numpy.typing import NDArray
import pyops
from pyops import onnx_op

F32 = NDArray[np.float32]

@onnx_op("book::Plus")
def plus(x: F32) -> F32:
    return x + np.float32(1)
"""
FAILING = """
@onnx_op("book::Fails")
def fails(x: F32) -> F32:
    return [x[10], x]
"""


@pytest.fixture(scope="module")
def ipython(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        hooks = sys.excepthook, sys.displayhook
        config = Config()
        config.HistoryManager.enabled = False
        made: Any = InteractiveShell.instance(config=config)
        yield made
        made.atexit_operations()
        atexit.unregister(made.atexit_operations)
        InteractiveShell.clear_instance()
        made.restore_sys_module_state()
        sys.excepthook, sys.displayhook = hooks


@pytest.fixture
def shell(ipython: Any) -> Iterator[Any]:
    ipython.run_line_magic("load_ext", "pyops")
    yield ipython
    ipython.run_line_magic("unload_ext", "pyops")


def run(shell: Any, cell: str) -> Any:
    return shell.run_cell(cell, silent=False)


def shown(shell: Any, cell: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    shell.run_line_magic("colors", "nocolor")
    run(shell, cell)
    return capsys.readouterr().out


def test_a_traceback_has_the_user_s_frames_alone(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, DECLARE)
    run(shell, FAILING)
    text = shown(shell, "fails(np.ones(3, np.float32))", capsys)
    assert "IndexError: index 10 is out of bounds" in text
    assert "return [x[10], x]" in text
    assert "fails(np.ones(3, np.float32))" in text
    assert "pyops/_core/ops/op.py" not in text
    assert "pyops/_core/schema/call_validation.py" not in text


def test_a_session_s_too_and_the_note_stays(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, DECLARE)
    run(shell, FAILING)
    run(shell, "from tests.helpers.models import chain; session = pyops.InferenceSession(chain('book::Fails'))")
    text = shown(shell, "session.run(None, {'x': np.ones(3, np.float32)})", capsys)
    assert "session.py" not in text
    assert "return [x[10], x]" in text
    assert "in node 'node0' (book::Fails)" in text


def test_an_error_of_pyops_ends_in_the_user_s_line(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, DECLARE)
    text = shown(shell, "plus(np.ones(3))", capsys)
    assert "InputError" in text
    assert "plus(np.ones(3))" in text
    assert "kernel.py" not in text


def test_an_interrupt_and_an_error_of_a_declaration_too(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, DECLARE)
    run(shell, FAILING.replace("return [x[10], x]", "raise KeyboardInterrupt"))
    text = shown(shell, "fails(np.ones(3, np.float32))", capsys)
    assert "KeyboardInterrupt" in text
    assert "raise KeyboardInterrupt" in text
    assert "pyops/_core/ops/op.py" not in text
    text = shown(shell, DECLARE.replace("x: F32", "x: int"), capsys)
    assert "int is not a tensor type" in text
    assert "def plus(x: int)" in text
    assert "pyops/_" not in text


def test_without_the_extension_they_are_as_ever(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run(shell, DECLARE)
    shell.run_line_magic("unload_ext", "pyops")
    assert "validation.py" in shown(shell, "plus(np.ones(3))", capsys)
    shell.run_line_magic("load_ext", "pyops")


def test_somebody_else_s_way_with_exceptions_stays(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_line_magic("unload_ext", "pyops")
    shell.set_custom_exc((ValueError,), lambda *args, tb_offset=None: print("theirs"))
    shell.run_line_magic("load_ext", "pyops")
    assert shown(shell, "raise ValueError", capsys) == "theirs\n"
    shell.run_line_magic("unload_ext", "pyops")
    assert shell.custom_exceptions == (ValueError,)
    shell.set_custom_exc((), None)


def test_what_raises_no_exception_of_ours_is_shown_in_full(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(shell, "import json; json.loads('{')", capsys)
    assert "JSONDecodeError" in text
    assert "decoder.py" in text


def test_a_real_kernel_shows_tables_and_short_tracebacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    client = pytest.importorskip("jupyter_client.manager")
    manager, kernel = client.start_new_kernel(kernel_name="python3")
    try:
        messages: list[dict[str, Any]] = []

        def execute(code: str) -> Any:
            messages.clear()
            return kernel.execute_interactive(code, output_hook=messages.append, timeout=60)["content"]

        assert execute(f"%load_ext pyops\n{DECLARE}")["status"] == "ok"
        assert execute("pyops.list_ops()")["status"] == "ok"
        (shown,) = (message["content"]["data"] for message in messages if message["msg_type"] == "execute_result")
        assert "<td>Plus</td>" in shown["text/html"]
        assert "Plus" in shown["text/plain"]
        assert execute("plus")["status"] == "ok"
        (shown,) = (message["content"]["data"] for message in messages if message["msg_type"] == "execute_result")
        assert "<p>book::Plus, version 1</p>" in shown["text/html"]
        reply = execute("plus(np.ones(3))")
        assert reply["ename"] == "InputError"
        assert "kernel.py" not in "".join(reply["traceback"])
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)


def test_the_names_that_ipython_looks_for_are_there() -> None:
    assert callable(pyops.load_ipython_extension)
    assert callable(pyops.unload_ipython_extension)
