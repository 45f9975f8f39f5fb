"""A script runs in a process of its own, whether that is new or a fork."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import scripts

ENDS = {
    "crash": ("os.kill(os.getpid(), signal.SIGSEGV)", "", -signal.SIGSEGV),
    "abort": ("os.abort()", "", -signal.SIGABRT),
    "exit code": ("sys.exit(3)", "", 3),
    "exception": ("raise LookupError", "", 1),
    "what runs at exit": ("import atexit; atexit.register(print, 'at exit'); print('before')", "before\nat exit", 0),
}


@pytest.mark.parametrize(("script", "printed", "code"), ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("run", [scripts.run_script, scripts.run_new_script])
def test_it_ends_as_a_process_does(run: Callable[..., str], script: str, printed: str, code: int) -> None:
    errors = run(script, printed, code)
    assert ("Fatal Python error: Segmentation fault" in errors) == (code == -signal.SIGSEGV)
    assert ("LookupError" in errors) == (code == 1)


def test_it_has_the_environment_and_nothing_of_the_script_before(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts.run_script("np.left = os.environ['LEFT'] = ''", "")
    monkeypatch.setenv("GIVEN", "here")
    script = "print(os.environ['GIVEN'], 'LEFT' in os.environ, hasattr(np, 'left'), os.environ['MALLOC_PERTURB_'])"
    scripts.run_script(script, "here False False 165")


def test_one_that_hangs_is_ended_and_the_next_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "TIMEOUT", 3)
    os.mkfifo(tmp_path / "said")
    said = os.open(tmp_path / "said", os.O_RDONLY | os.O_NONBLOCK)
    script = f"said = open({str(tmp_path / 'said')!r}, 'w'); print('hangs', file=said, flush=True); signal.pause()"
    with pytest.raises(subprocess.TimeoutExpired):
        scripts.run_script(script, "")
    os.set_blocking(said, True)
    with os.fdopen(said) as file:
        assert file.read() == "hangs\n"  # to its end, when the process is gone
    monkeypatch.undo()
    scripts.run_script("print(1)", "1")
