"""What docstrings of public names lack."""

from __future__ import annotations

import doctest
import inspect
from types import ModuleType
from typing import Any

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def public(module: ModuleType) -> dict[str, Any]:
    """The public names of a module with their values, except data."""
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    found = {name: getattr(module, name) for name in names if not name.startswith("_")}
    return {name: value for name, value in found.items() if callable(value) or inspect.ismodule(value)}


def without_example(values: dict[str, Any]) -> list[str]:
    """The names of values whose docstrings have no example that runs, beyond imports."""
    return [
        name
        for name, value in values.items()
        if "Examples\n--------" not in (inspect.getdoc(value) or "") or not any(map(_shows, _examples(value)))
    ]


def undescribed(values: dict[str, Any]) -> list[str]:
    """The parameters that docstrings do not mention, as ``name: parameter``."""
    return [
        f"{name}: {parameter}"
        for name, value in values.items()
        if inspect.isfunction(value)
        for parameter, described in inspect.signature(value).parameters.items()
        if parameter not in (inspect.getdoc(value) or "") and described.kind not in _VARIABLE
    ]


def _examples(value: Any) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")


def _shows(example: doctest.Example) -> bool:
    return not example.source.startswith(("import ", "from ")) and not example.options.get(doctest.SKIP)
