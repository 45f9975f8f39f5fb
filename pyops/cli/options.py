"""The options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


def _made(folder: Path | None) -> Path | None:
    """A folder for results, made before anything is computed."""
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise typer.BadParameter(f"the folder cannot be made: {error}") from error
    return folder


class EngineName(StrEnum):
    """What `pyops.InferenceSession` takes as `engine`."""

    AUTO = "auto"
    NATIVE = "native"
    EXTENSIONS = "extensions"


Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The ONNX model.", exists=True, dir_okay=False, readable=True)
]
OpName = Annotated[str, typer.Argument(metavar="OP", help="module:op, file.py:op or domain::Name.")]
Benched = Annotated[
    str, typer.Argument(metavar="OP|MODEL", help="module:op, file.py:op or domain::Name; or a file model.onnx.")
]
Modules = Annotated[
    list[str],
    typer.Option("--import", "-i", metavar="MODULE", help="Import a module or file that declares ops."),
]
Plugins = Annotated[bool, typer.Option("--plugins", help="Import installed plug-ins, and not only list them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Inputs = Annotated[
    list[str],
    typer.Option("--input", "-x", metavar="NAME=ARRAY", help="A file (x=a.npy), or random values (x=float32[2,3])."),
]
Attributes = Annotated[
    list[str], typer.Option("--attribute", "-a", metavar="NAME=VALUE", help="An attribute of the op.")
]
Checks = Annotated[
    list[str], typer.Option("--only", metavar="CHECK", help="Run these checks alone: names, or patterns (engine_*).")
]
Generate = Annotated[int, typer.Option(min=0, metavar="N", help="Check N more calls that hypothesis makes up.")]
Save = Annotated[
    Path | None, typer.Option("--save", metavar="DIR", callback=_made, help="Save each output there as a .npy file.")
]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", callback=_made, help="Keep the exported model in this folder.")
]
Engine = Annotated[EngineName, typer.Option(help="How ONNX Runtime calls the ops.")]
Providers = Annotated[
    list[str], typer.Option("--provider", metavar="NAME", help="An execution provider; several are tried in turn.")
]
