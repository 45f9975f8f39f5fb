"""The entry point of the command line: ``python -m pyops``, or ``pyops`` if the package is installed."""

from __future__ import annotations

import faulthandler
import io
import sys
import warnings


def main() -> None:
    """Run the command line."""
    try:
        from ._cli import app
        from ._cli.output import format_warning
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.exit(f'error: the command line needs {package}, which is not installed: pip install "onnx-pyops[cli]"')
    if sys.stderr is not None:  # None if the stream was closed
        faulthandler.enable()  # prints a traceback if native code that a kernel calls crashes
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the stream's encoding may lack characters of a model's names
            stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = format_warning
    try:
        app(prog_name="pyops")
    except OSError as error:  # stdout cannot be written; what else commands raise they print
        sys.stdout = None  # else Python writes to it once more, and prints a traceback
        sys.exit(f"error: the output cannot be written: {error.strerror or error}")


if __name__ == "__main__":
    main()
