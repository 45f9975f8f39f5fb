"""The releases of other packages that pyops is tested with."""

from __future__ import annotations

TESTED = {"onnxruntime": ("1.28", "1.32"), "torch": ("2.13", "2.15")}
"""By package, the first and the last."""


def is_tested(package: str, version: str) -> bool:
    """Return whether a version of a package lies between the releases that are tested."""
    first, last = map(_release, TESTED[package])
    return first <= _release(version) <= last


def tested(package: str) -> str:
    """Return the releases of a package that are tested, as messages name them."""
    return f"{package} {' to '.join(TESTED[package])}"


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))
