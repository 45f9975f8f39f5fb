"""The command ``replace``: ops of a module into a model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import Op
from ..errors import PyopsError, did_you_mean
from . import output
from .command_arguments import as_feed, import_module, read_arrays
from .output import Answer, answering


@answering
def replace_nodes(
    model: output.Model,
    module: Annotated[str, typer.Option("--ops", metavar="MODULE", help="A module or file that declares ops.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the model goes.")],
    names: Annotated[list[str], typer.Option("--op", metavar="OP", help="Only this op, domain::Name.")] = [],  # noqa: B006
    inputs: output.Inputs = [],  # noqa: B006
    no_verify: Annotated[bool, typer.Option("--no-verify", metavar="", help="Compare no numbers.")] = False,
    no_bodies: Annotated[
        bool, typer.Option("--no-bodies", metavar="", help="Add no bodies: the model needs pyops.")
    ] = False,
    as_json: output.Json = False,
) -> Answer:
    """Replace nodes of a model that compute what the decomposition of an op says by one node of the op.

    The ops are those that the module declares with a decomposition; what it imports does not count. Random inputs are
    generated unless inputs are given. The exit code is 1 if an op has no place; the model is written all the same.
    """
    from .. import InferenceSession, replace

    ops = _declared(module, names)
    arrays = read_arrays(inputs)
    feed = as_feed(arrays, InferenceSession(model).get_inputs()) if arrays else None
    replaced = replace(model, ops, inputs=feed, bodies=not no_bodies, verify=not no_verify)
    try:
        replaced.save(out)
    except OSError as error:
        raise PyopsError(str(error)) from error
    return Answer(replaced.parts(), replaced.to_dict(), all(replaced.counts.values()))


def _declared(module: str, names: Iterable[str]) -> list[Op[..., Any]]:
    """Return the ops with decompositions that a module, or one within it, declares: all, or those of these names."""
    content = import_module(module)
    own = f"{content['__name__']}."
    ops = {
        item.signature.qualified_name: item
        for item in content.values()
        if isinstance(item, Op) and item.decompositions and f"{item.__module__}.".startswith(own)
    }
    if not ops:
        raise typer.BadParameter(f"{module!r} declares no op with a decomposition", param_hint="--ops")
    for name in names:
        if name not in ops:
            known = f"{did_you_mean(name, ops)}; it has {', '.join(ops)}"
            raise typer.BadParameter(
                f"{module!r} declares no op {name!r} with a decomposition{known}", param_hint="--op"
            )
    return [ops[name] for name in names or ops]
