"""The command ``replace``: ops of a module into a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import Op
from . import output
from .command_arguments import as_feed, import_module, read_arrays
from .output import Answer, answering


@answering
def replace_nodes(
    model: output.Model,
    module: Annotated[str, typer.Option("--ops", metavar="MODULE", help="A module or file that declares ops.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the model goes.")],
    inputs: output.Inputs = [],  # noqa: B006  typer reads it
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Compare no numbers.")] = False,
    no_bodies: Annotated[bool, typer.Option("--no-bodies", help="Add no bodies: the model needs pyops.")] = False,
    as_json: output.Json = False,
) -> Answer:
    """Replace nodes of a model that compute what the decomposition of an op says by one node of the op.

    Those ops of the module count that have a decomposition. Random inputs are generated unless inputs are given. The
    exit code is 1 if an op has no place; the model is written all the same.
    """
    from .. import InferenceSession, replace

    found = {id(item): item for item in import_module(module).values() if isinstance(item, Op) and item.decompositions}
    if not found:
        raise typer.BadParameter(f"{module!r} has no op with a decomposition", param_hint="--ops")
    arrays = read_arrays(inputs)
    feed = as_feed(arrays, InferenceSession(model).get_inputs()) if arrays else None
    replaced = replace(model, list(found.values()), inputs=feed, bodies=not no_bodies, verify=not no_verify)
    replaced.save(out)
    return Answer(replaced.parts(), replaced.to_dict(), all(replaced.counts.values()))
