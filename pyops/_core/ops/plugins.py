"""Plug-ins: installed packages that provide ops, with an entry point for each domain.

A plug-in is imported when a model uses an op of its domain. The model contributes only the name of the domain; no code
in it is run or imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..._support.locks import RLock
from ...errors import PluginError, PluginWarning, warn
from . import extensions_decorators, op_registry
from .source_location import installed_plugins, module_of, package

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .op import AnyOp

VARIABLE = "PYOPS_PLUGINS"

_imported: set[EntryPoint] = set()
_importing: set[str] = set()  # modules
_lock = RLock()


def import_plugins_for(domains: Iterable[str]) -> None:
    """Import the plug-ins that provide one of these domains.

    Raises
    ------
    PluginError
        A plug-in is broken, or ``PYOPS_PLUGINS`` is neither 0 nor 1.
    """
    wanted = set(domains)
    if wanted and are_plugins_enabled():
        for _, plugin in waiting_plugins():
            if plugin.name in wanted:
                _import(plugin)


def import_all_plugins() -> None:
    """Import every plug-in, for use when it is not known which of them a model will need.

    Raises
    ------
    PluginError
        ``PYOPS_PLUGINS`` is neither 0 nor 1.

    Warns
    -----
    PluginWarning
        A plug-in is broken.
    """
    for _, plugin in waiting_plugins() if are_plugins_enabled() else ():
        try:
            _import(plugin)
        except PluginError as error:
            warn(str(error), PluginWarning)


def waiting_plugins() -> list[tuple[str, EntryPoint]]:
    """Return the installed plug-ins that have not been imported yet, each after its package, and sorted by package."""
    found = [(package(plugin), plugin) for plugin in set(installed_plugins()) - _imported]
    return sorted(found, key=lambda item: (item[0].lower(), item[1].name))


def disabled_package(domain: str) -> str | None:
    """Return the installed package that provides a domain, if plug-ins are disabled; None otherwise."""
    found = [] if are_plugins_enabled() else [package for package, plugin in waiting_plugins() if plugin.name == domain]
    return found[0] if found else None


def are_plugins_enabled() -> bool:
    """Return whether plug-ins may be imported.

    Raises
    ------
    PluginError
        ``PYOPS_PLUGINS`` is neither 0 nor 1.
    """
    value = os.environ.get(VARIABLE, "1")
    if value not in ("0", "1"):
        raise PluginError(f"{VARIABLE} is {value!r}; set it to 0 to import no plug-ins, or to 1 (the default)")
    return value == "1"


def _import(plugin: EntryPoint) -> None:
    with _lock:
        if plugin in _imported:  # by another thread, meanwhile
            return
        provides = f"the installed package {package(plugin)} provides the ops of domain {plugin.name!r}"
        fix = f"fix or uninstall it, or set {VARIABLE}=0 to disable plug-ins"
        if plugin.module in _importing:
            raise PluginError(
                f"{provides}, but {plugin.module} is being imported, and its ops are declared when that ends; let it "
                "make the session later, in a function"
            )
        _importing.add(plugin.module)
        try:
            ops = _load(plugin)
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"{provides}, but cannot be imported ({plugin.value}: {type(error).__name__}: {error}); {fix}"
            ) from error
        finally:
            _importing.remove(plugin.module)
        adopted = {domain for domain, _ in extensions_decorators.adopted_ops()}
        if plugin.name not in op_registry.op_domains() | adopted | {op.domain for op in ops}:
            raise PluginError(f"{provides}, but {plugin.value} declares none of that domain; {fix}")
        # Users who develop an installed op have already declared their own version of it.
        op_registry.declare_new(ops)
        _imported.add(plugin)


def _load(plugin: EntryPoint) -> list[AnyOp]:
    """Import the module of a plug-in; return the ops that it declares, not registered yet."""
    modules = set(sys.modules)
    with op_registry.collecting() as ops:
        try:
            plugin.load()
        except BaseException:  # an interrupt, too
            # Python removes only the module that raised; the others must be imported again to declare their ops again.
            for name in {module_of(op.kernels["cpu"]) for op in ops} - modules:
                sys.modules.pop(name, None)
            raise
    return ops
