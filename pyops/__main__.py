"""The command line: ``python -m pyops``, which is ``pyops`` where the package is installed."""

from __future__ import annotations

import faulthandler
import io
import sys


def main() -> None:
    """Run the command that the command line names."""
    try:
        from ._cli.app import app
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.exit(f'error: the command line needs {package}, which is not installed: pip install "onnx-pyops[cli]"')
    if sys.stderr is not None:  # it may be closed
        faulthandler.enable()  # kernels may call machine code
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # whose encoding may lack what a model's names have
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="pyops")


if __name__ == "__main__":
    main()
