"""Libraries of `pyops.build` that are registered in session options: pyops does not host their ops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnxruntime

from .._models.model import Key
from .native.options import config_entry

LIBRARY_ENTRY = "pyops.library."
"""The prefix of the configuration entries that libraries write, one for each of their domains."""


def library_ops(options: Any, domains: Iterable[str]) -> set[Key]:
    """Return the domain and name of each op in these domains that a library in the session options has."""
    found: set[Key] = set()
    # The engine reports options of another class.
    for domain in domains if isinstance(options, onnxruntime.SessionOptions) else ():
        found |= {(domain, name) for name in config_entry(options, LIBRARY_ENTRY + domain).split()}
    return found
