"""The command line, ``python -m tests.replaced_models``."""

from __future__ import annotations

import sys
from typing import Any

from pyops.errors import MissingDependencyError, PyopsError


def main() -> None:
    """Parse the command line and run the command; exit with a one-line message on an error."""
    try:
        _app()()
    except (PyopsError, OSError) as error:  # OSError: a file cannot be written
        sys.exit(f"error: {error}")


def _app() -> Any:
    try:
        import typer

        from tests.replaced_models.command import replaced
    except ImportError as error:
        raise MissingDependencyError(
            f'the command needs {error.name}, which is not installed: pip install "onnx-pyops[coverage,replace]"'
        ) from error
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(replaced)
    return app


if __name__ == "__main__":
    main()
