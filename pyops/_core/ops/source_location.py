"""Origins of ops: the file, line, module and installed package of a function."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ...errors import RedeclarationWarning, warn

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# importlib.metadata and pathlib are imported where they are used: a declaration uses neither, and importing them takes
# longer than importing what a declaration needs of pyops.


def location(function: Callable[..., Any]) -> str:
    """Return where a function is defined, as ``file:line``.

    Wrappers are unwrapped first. The result is ``unknown`` for a function that is not written in Python.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "unknown"


def source_line(function: Callable[..., Any]) -> str:
    """Return a function's `location`, relative to the working directory if the file is inside it."""
    from pathlib import Path

    path, _, line = location(function).rpartition(":")
    with contextlib.suppress(ValueError, OSError):  # outside the working directory, or that has been deleted
        path = str(Path(path).relative_to(Path.cwd()))
    return f"{path}:{line}" if path else line


def module_of(function: Callable[..., Any]) -> str:
    """Return the name of the module that defines a function, or ``unknown``."""
    return str(getattr(function, "__module__", None) or "unknown")


def warn_of_takeover(name: str, before: Callable[..., Any], now: Callable[..., Any]) -> None:
    """Warn if an op's new function is not a new version of the function that it replaces.

    A function of the same qualified name in the same module or file is the same function, edited or imported again.

    Parameters
    ----------
    name : str
        The op's qualified name.

    Warns
    -----
    RedeclarationWarning
        `now` is not a new version of `before`.
    """
    same_name = _qualified_name(before) == _qualified_name(now)
    if same_name and (module_of(before) == module_of(now) or _is_same_file(before, now)):
        return
    warn(
        f"{name} now refers to {_format(now)} (previously {_format(before)}). Give one of them another name, domain or "
        "version, or ignore pyops.errors.RedeclarationWarning if this is intended",
        RedeclarationWarning,
    )


def _qualified_name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or getattr(function, "__name__", "unknown"))


def _is_same_file(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether two functions are defined in one file, as when a script is both run and imported."""
    from pathlib import Path

    (path, _, _), (other_path, _, _) = location(one).rpartition(":"), location(other).rpartition(":")
    return Path(path).is_file() and Path(path).resolve() == Path(other_path).resolve()


def _format(function: Callable[..., Any]) -> str:
    return f"{_qualified_name(function)} of module {module_of(function)} ({source_line(function)})"


def package_of(domain: str, function: Callable[..., Any]) -> str | None:
    """Return the name and version of the installed package that contains an op's function, or None."""
    return _package_of_module(domain, module_of(function))


# Cached, since reading the metadata of all packages is slow, and an imported module does not change its package.
@functools.cache
def _package_of_module(domain: str, module: str) -> str | None:
    for plugin in installed_plugins():
        if plugin.name == domain and f"{module}.".startswith(f"{plugin.module}."):
            return package(plugin)
    return _package_of_import(module.partition(".")[0])


@functools.cache
def _package_of_import(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, packages_distributions, version

    names = packages_distributions().get(name)
    try:
        return f"{names[0]} {version(names[0])}" if names else None
    except PackageNotFoundError:
        return None


def installed_plugins() -> Collection[EntryPoint]:
    """Return the entry points of installed packages that provide ops; each has the name of a domain."""
    from importlib.metadata import entry_points

    # Not cached: a package may be installed while a notebook runs.
    return entry_points(group="pyops.ops")


def package(plugin: EntryPoint) -> str:
    """Return the name and version of the installed package that a plug-in belongs to."""
    return f"{plugin.dist.name} {plugin.dist.version}" if plugin.dist else plugin.module
