"""What pickles name of pyops: one function, so that all it makes may be moved and renamed."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

from ..errors import PickleError
from .satellites import makers


def unpickle(name: str, /, *arguments: Any, **keywords: Any) -> Any:
    """Make what a pickle of pyops holds; pickle calls this, nobody else needs to.

    Raises
    ------
    PickleError
        This release makes nothing of that name.
    """
    if name not in makers:
        raise PickleError(f"this version of pyops cannot unpickle {name!r}; install the release that made it")
    return makers[name]()(*arguments, **keywords)


unpickle.__module__ = "pyops"


class Pickled:
    """A dataclass that is pickled as the values of its fields, by name."""

    def __reduce__(self) -> tuple[Any, ...]:
        given = [item.name for item in fields(self) if item.init]  # type: ignore[arg-type]  # subclasses are dataclasses
        values = {name: getattr(self, name) for name in given}
        return partial(unpickle, type(self).__name__, **values), ()
