"""A process that has done what many scripts begin with, and forks for each of them, so that a script starts at once.

A fork is a process of its own: it has an exit code, crashes alone, and ends as the interpreter does. What depends
on how a process starts, or on what it has not imported yet, needs a new one.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

_SERVE = """
def _next_script():
    import json, os, sys

    for line in sys.stdin:
        if os.fork():
            print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
            continue
        script, folder, environment = json.loads(line)
        for number, path in enumerate((os.devnull, f"{folder}/stdout", f"{folder}/stderr")):
            file = os.open(path, os.O_RDWR | os.O_CREAT)
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(environment)
        return script
    os._exit(0)

exec(_next_script())
"""


class ForkServer:
    """A process that has run the common start of scripts."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the process by a command whose last argument is Python code."""
        *python, start = command
        self._process = subprocess.Popen(
            [*python, start + _SERVE],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.kill)

    def run(self, script: str, environment: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
        """Run a script in a fork, as `subprocess.run` does in a new process."""
        requests, replies = self._process.stdin, self._process.stdout
        assert requests
        assert replies
        with TemporaryDirectory() as folder:
            print(json.dumps([script, folder, dict(environment)]), file=requests, flush=True)
            if not select.select([replies], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(script, timeout)
            code = int(replies.readline())
            stdout, stderr = (Path(folder, name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess(script, code, stdout, stderr)

    def kill(self) -> None:
        """End the process, and the fork that runs."""
        atexit.unregister(self.kill)
        with self._process:
            os.killpg(self._process.pid, signal.SIGKILL)
