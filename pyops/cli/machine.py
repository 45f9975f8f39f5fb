"""The commands that need no model and no op: ``doctor`` and ``demo``."""

from __future__ import annotations

from dataclasses import asdict

from ..doctor import State, diagnose, examine
from ..errors import MissingDependencyError
from . import options
from .output import Answer, answering, progress_console


@answering
def doctor(as_json: options.Json = False) -> Answer:
    """Say what is installed, which engine works and why not, and what to type where something is broken.

    Each thing is tried in a process of its own, exporters and installed plug-ins among them. The exit code is 1 where
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


@answering
def demo(out: options.Out = None) -> None:
    """Declare, train, export, run and compare on real data."""
    try:
        from exporters import demo
    except ImportError as error:
        raise MissingDependencyError(
            f'the demo needs {error.name}, which is not installed: pip install "onnx-pyops[demo]"'
        ) from error
    demo.run(out)
