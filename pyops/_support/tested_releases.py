"""What pyops is tested with: releases of other packages, and systems."""

from __future__ import annotations

from typing import NamedTuple

TESTED = {"onnxruntime": ("1.27", "1.32"), "torch": ("2.13", "2.15")}
"""Package name to the first and the last tested release."""

OLDEST = TESTED["onnxruntime"][0]
"""Oldest supported ONNX Runtime."""

EXCHANGE = {
    "onnxruntime": ("1.27.0", "1.28.0", "1.29.0", "1.30.0", "1.31.0", "1.31.1", "1.32.0"),
    "Python": ("3.11", "3.12", "3.13", "3.14"),
    "the system": ("linux-x86-64",),
}
"""What the exchange was tested with, which takes place nowhere else (`pyops/_machine/direct/exchange.py`)."""


class System(NamedTuple):
    """A system and a Python, the engines tested there, how, and on which day."""

    system: str
    machine: str
    python: str
    onnxruntime: str
    engine: str
    how: str
    day: str


SYSTEMS = (
    System("Linux", "x86_64", "3.11", "1.32", "native, extensions", "machine", "2026-11-26"),
    System("Linux", "x86_64", "3.12", "1.27", "native, extensions", "machine", "2026-11-26"),
    System("Linux", "x86_64", "3.13", "1.32", "native, extensions", "machine", "2026-11-26"),
    System("Linux", "x86_64", "3.14", "1.32", "native", "machine", "2026-11-26"),
    System("Linux", "aarch64", "3.11", "1.32", "native", "emulated (qemu)", "2026-11-26"),
    System("Windows", "AMD64", "3.13", "1.32", "native, extensions", "emulated (Wine)", "2026-11-26"),
)


def how_tested(system: str, machine: str, python: str) -> str:
    """Return how pyops was tested on a system, named as by the module `platform`, with a Python such as ``"3.11"``."""
    for row in SYSTEMS:
        if row[:3] == (system, machine, python):
            return f"tested ({row.engine}; {row.how}; {row.day})"
    return "not tested; pyops doctor --selftest tries it here"


def is_tested(package: str, version: str) -> bool:
    """Return whether a version of a package is in the range of tested releases."""
    first, last = map(release, TESTED[package])
    return first <= release(version) <= last


def is_older(version: str, than: str) -> bool:
    """Return whether a version is of an earlier release than another."""
    return release(version) < release(than)


def tested(package: str) -> str:
    """Return the range of tested releases of a package, for messages: ``torch 2.13 to 2.15``."""
    return f"{package} {' to '.join(TESTED[package])}"


def release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, by which releases are ordered."""
    return tuple(map(int, version.split(".")[:2]))
