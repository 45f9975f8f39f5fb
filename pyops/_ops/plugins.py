"""Installed packages that provide ops, and name the domains in their entry points.

They are imported when a model needs one of these domains. A model names domains and no more: nothing
that it holds is run or imported.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from importlib.metadata import EntryPoint

from ..errors import PluginError, PluginWarning
from . import adoption, registry
from .origin import installed_plugins, module_of, package

VARIABLE = "PYOPS_PLUGINS"

_imported: set[EntryPoint] = set()


def import_for(domains: Iterable[str]) -> None:
    """Import the plug-ins that provide one of these domains.

    Raises
    ------
    PluginError
        One of them is broken, or the environment variable has another value than 0 or 1.
    """
    wanted = set(domains)
    if wanted and is_enabled():
        for plugin in not_imported():
            if plugin.name in wanted:
                _import(plugin)


def import_all() -> None:
    """Import every plug-in, where it is not known which a model will need; a broken one is a warning."""
    for plugin in not_imported() if is_enabled() else ():
        try:
            _import(plugin)
        except PluginError as error:
            warnings.warn(PluginWarning(str(error)), stacklevel=3)


def not_imported() -> list[EntryPoint]:
    """The installed plug-ins that are not imported yet, by the names of their packages."""
    return sorted(set(installed_plugins()) - _imported, key=lambda plugin: (package(plugin), plugin.name))


def held_back(domain: str) -> str | None:
    """The installed package that provides a domain and is not imported because plug-ins are turned off."""
    found = [] if is_enabled() else [package(plugin) for plugin in not_imported() if plugin.name == domain]
    return found[0] if found else None


def is_enabled() -> bool:
    """Whether plug-ins may be imported.

    Raises
    ------
    PluginError
        The environment variable has another value than 0 or 1.
    """
    value = os.environ.get(VARIABLE, "1")
    if value not in ("0", "1"):
        raise PluginError(f"{VARIABLE} is {value!r}; set it to 0 to import no plug-ins, or to 1 (the default)")
    return value == "1"


def _import(plugin: EntryPoint) -> None:
    provides = f"the installed package {package(plugin)} provides the ops of domain {plugin.name!r}"
    fix = f"fix or uninstall it, or set {VARIABLE}=0 to go without plug-ins"
    try:
        _load(plugin)
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{provides} and cannot be imported ({plugin.value}: {type(error).__name__}: {error}); {fix}"
        ) from error
    if plugin.name not in registry.domains() | {domain for domain, _ in adoption.adopted_ops()}:
        raise PluginError(f"{provides}, and {plugin.value} declares none of that domain; {fix}")
    _imported.add(plugin)


def _load(plugin: EntryPoint) -> None:
    modules = set(sys.modules)
    # What is declared already stays: somebody may be working on an op that is installed as well.
    with registry.adding_only() as added:
        try:
            plugin.load()
        except BaseException:
            # As Python forgets the module that raised, so that those whose ops are withdrawn declare them again.
            for name in {module_of(op.kernels["cpu"]) for op in added} - modules:
                sys.modules.pop(name, None)
            raise
