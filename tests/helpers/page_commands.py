"""Command lines of tests: one command each, which writes a page."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from pyops.errors import MissingDependencyError, PyopsError


def run(command: str, extras: str) -> None:
    """Parse the command line and run a function; exit with a one-line message on an error.

    Parameters
    ----------
    command : str
        The function's module and name, with a dot in between.
    extras : str
        The extras of the package that it needs.
    """
    try:
        _app(command, extras)()
    except (PyopsError, OSError) as error:  # OSError: a file cannot be written
        sys.exit(f"error: {error}")


def _app(command: str, extras: str) -> Any:
    module, _, name = command.rpartition(".")
    try:
        import typer

        function = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise MissingDependencyError(
            f'the command needs {error.name}, which is not installed: pip install "onnx-pyops[{extras}]"'
        ) from error
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(function)
    return app
