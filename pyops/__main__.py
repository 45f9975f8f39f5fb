"""The command line: ``python -m pyops demo``."""

from __future__ import annotations

import argparse
from pathlib import Path

from .errors import MissingDependencyError


def main() -> None:
    """Parse the command line and run the command."""
    parser = argparse.ArgumentParser(prog="python -m pyops", description="ONNX Runtime operators in Python.")
    commands = parser.add_subparsers(title="commands", required=True)
    command = commands.add_parser("demo", help="declare, train, export, run and compare on real data")
    command.add_argument("--out", type=Path, metavar="DIR", help="keep the exported model in this folder")
    command.set_defaults(run=demo)
    arguments = parser.parse_args()
    arguments.run(arguments)


def demo(arguments: argparse.Namespace) -> None:
    """Run the demo.

    Raises
    ------
    MissingDependencyError
        A package of the ``demo`` extra is not installed.
    """
    try:
        from exporters import demo
    except ImportError as error:
        raise MissingDependencyError(
            f'the demo needs {error.name}, which is not installed: pip install "onnx-pyops[demo]"'
        ) from error
    demo.run(arguments.out)


if __name__ == "__main__":
    main()
