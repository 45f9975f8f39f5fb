"""The commands that need no model and no op: ``doctor`` and ``demo``."""

from __future__ import annotations

import typer

from ..doctor import State, diagnose, examine
from ..errors import MissingDependencyError
from . import options
from .output import FAILED, print_json, print_lines, print_table, progress_console, reporting_errors


@reporting_errors
def doctor(as_json: options.Json = False) -> None:
    """Say what is installed, which engine works and why not, and what to type where something is broken.

    Each thing is tried in a process of its own, installed plug-ins among them. The exit code is 1 where
    something is broken.
    """
    with progress_console().status("trying what is installed"):
        findings = diagnose(examine())
    broken = [item for item in findings if item.state is State.BROKEN]
    if as_json:
        records = [
            {"what": item.what, "state": item.state.value, "found": item.found, "fix": item.fix} for item in findings
        ]
        print_json({"ok": not broken, "findings": records})
    else:
        print_table([("", "state", "found"), *((item.what, item.state.value, item.found) for item in findings)])
        fixes = [f"{item.what}: {item.fix}" for item in findings if item.fix and item.state is not State.OK]
        print_lines(["", *fixes, f"{len(broken)} broken" if broken else "nothing is broken"])
    if broken:
        raise typer.Exit(FAILED)


@reporting_errors
def demo(out: options.Out = None) -> None:
    """Declare, train, export, run and compare on real data."""
    try:
        from exporters import demo
    except ImportError as error:
        raise MissingDependencyError(
            f'the demo needs {error.name}, which is not installed: pip install "onnx-pyops[demo]"'
        ) from error
    demo.run(out)
