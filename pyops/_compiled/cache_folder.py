"""The folder in which machine code is cached."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Return the cache folder: ``$PYOPS_CACHE_DIR``, or ``pyops`` in the user's cache folder.

    None if the user has no home folder, as in a container that runs under an unknown user id.
    """
    if chosen := os.environ.get("PYOPS_CACHE_DIR"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base, "pyops")
    try:
        return Path.home() / ".cache" / "pyops"
    except RuntimeError:
        return None
