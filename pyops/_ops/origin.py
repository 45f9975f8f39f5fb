"""Where an op comes from: the line, module and installed package of its function; and what hosts it here."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, packages_distributions, version
from pathlib import Path
from typing import Any

from ..errors import RedeclarationWarning

DELETED = "a folder that has been deleted"


def location(function: Callable[..., Any]) -> str:
    """Where a function, or what it wraps, stands: ``file:line``; ``unknown`` for one that is not written in Python."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "unknown"


def source_line(function: Callable[..., Any]) -> str:
    """Its location, from the working directory if it is below that."""
    path, _, line = location(function).rpartition(":")
    folder = working_folder()
    if folder is not None and Path(path).is_relative_to(folder):
        path = str(Path(path).relative_to(folder))
    return f"{path}:{line}" if path else line


def working_folder() -> Path | None:
    """Where relative paths start; None where that folder has been deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def module_of(function: Callable[..., Any]) -> str:
    """The module that a function is defined in."""
    return str(getattr(function, "__module__", None) or "unknown")


def tell_takeover(name: str, before: Callable[..., Any], now: Callable[..., Any], stacklevel: int) -> None:
    """Warn where another function takes the place of an op's.

    Parameters
    ----------
    name : str
        The op's.
    """
    same_name = _qualified_name(before) == _qualified_name(now)
    if same_name and (module_of(before) == module_of(now) or _is_same_file(before, now)):
        return
    warnings.warn(
        RedeclarationWarning(
            f"{name} is {_spell(now)} from now on, and was {_spell(before)}; give one of them another name, domain or "
            "version, or ignore pyops.errors.RedeclarationWarning where this is meant"
        ),
        stacklevel=stacklevel + 1,
    )


def _qualified_name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or getattr(function, "__name__", "unknown"))


def _is_same_file(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two functions stand in one file, as where a script is run and imported too."""
    (path, _, _), (other_path, _, _) = location(one).rpartition(":"), location(other).rpartition(":")
    return Path(path).is_file() and Path(path).resolve() == Path(other_path).resolve()


def _spell(function: Callable[..., Any]) -> str:
    return f"{_qualified_name(function)} of module {module_of(function)} ({source_line(function)})"


def package_of(domain: str, function: Callable[..., Any]) -> str | None:
    """The installed package of an op's function, with its version; None for a module that is in none."""
    module = module_of(function)
    for plugin in installed_plugins():
        if plugin.name == domain and f"{module}.".startswith(f"{plugin.module}."):
            return package(plugin)
    return _package_of_module(module.partition(".")[0])


# Reading what all packages say takes long, and a module that is imported has come from where it has.
@functools.cache
def _package_of_module(name: str) -> str | None:
    names = packages_distributions().get(name)
    try:
        return f"{names[0]} {version(names[0])}" if names else None
    except PackageNotFoundError:
        return None


def installed_plugins() -> Collection[EntryPoint]:
    """The entry points of installed packages that provide ops; each is named for a domain."""
    # Not cached: a package may be installed while a notebook runs.
    return entry_points(group="pyops.ops")


def package(plugin: EntryPoint) -> str:
    """The installed package that a plug-in belongs to, with its version."""
    return f"{plugin.dist.name} {plugin.dist.version}" if plugin.dist else plugin.module
