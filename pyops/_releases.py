"""The releases of other packages that pyops is tested with."""

from __future__ import annotations

TESTED = {"onnxruntime": ("1.28", "1.32"), "torch": ("2.13", "2.15")}
"""Package name to the first and the last tested release."""

OLDEST = TESTED["onnxruntime"][0]
"""Oldest supported ONNX Runtime. Older ones abort if a shape function sets the shape of an unused output."""


def is_tested(package: str, version: str) -> bool:
    """Return whether a version of a package is in the range of tested releases."""
    first, last = map(release, TESTED[package])
    return first <= release(version) <= last


def is_too_old(version: str) -> bool:
    """Return whether this version of ONNX Runtime is older than the oldest supported one."""
    return _release(version) < _release(OLDEST)


def tested(package: str) -> str:
    """Return the range of tested releases of a package, for messages: ``torch 2.13 to 2.15``."""
    return f"{package} {' to '.join(TESTED[package])}"


def release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, by which releases are ordered."""
    return tuple(map(int, version.split(".")[:2]))
