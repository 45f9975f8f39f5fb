"""Where an op comes from, and what hosts it here."""

from __future__ import annotations

import functools
import inspect
from importlib.metadata import PackageNotFoundError, entry_points, packages_distributions, version
from pathlib import Path
from typing import Any

from . import plugins
from .op import Op

AnyOp = Op[..., Any]


def source_line(op: AnyOp) -> str:
    """Where the declared function stands, from the working directory if it is below that."""
    path, _, line = op.location.rpartition(":")
    if Path(path).is_relative_to(Path.cwd()):
        path = str(Path(path).relative_to(Path.cwd()))
    return f"{path}:{line}" if path else op.location


def engine_name(op: AnyOp) -> str:
    """What hosts the op in a session on this machine; ``reference`` where none can."""
    try:
        from .engines.choice import engine_of
    except ImportError:  # no ONNX Runtime
        return "reference"
    return engine_of(op.signature) or "reference"


def module_of(op: AnyOp) -> str:
    """The module that declares the op."""
    return str(getattr(inspect.unwrap(op.kernels["cpu"]), "__module__", None) or "unknown")


def package_of(op: AnyOp) -> str | None:
    """The installed package that declares the op, with its version; None for a module that is in none."""
    module = module_of(op)
    for plugin in entry_points(group=plugins.GROUP):
        if plugin.name == op.domain and f"{module}.".startswith(f"{plugin.module}."):
            return plugins.package(plugin)
    return _package_of_module(module.partition(".")[0])


# Reading what all packages say takes long, and a module that is imported has come from where it has.
@functools.cache
def _package_of_module(name: str) -> str | None:
    names = packages_distributions().get(name)
    try:
        return f"{names[0]} {version(names[0])}" if names else None
    except PackageNotFoundError:
        return None
