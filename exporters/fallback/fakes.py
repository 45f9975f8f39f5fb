"""Fakes of operators at which ``torch.export`` stops, because torch's own look at the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FAKES: dict[str, Callable[..., Any]] = {}
