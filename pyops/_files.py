"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Where to write what `path` becomes at the end, with the files beside it; else what was there before stays.

    What is no file, such as ``/dev/stdout`` or a link, is written to itself.

    Raises
    ------
    OSError
        It cannot be written; names `path`.
    """
    target = Path(path)
    try:
        is_ours_to_replace = target.is_file() and os.access(target.parent, os.W_OK)
        if target.is_symlink() or (target.exists() and not is_ours_to_replace):
            yield target
            return
        with tempfile.TemporaryDirectory(prefix=".pyops-", dir=target.parent) as folder:
            part = Path(folder, target.name)
            yield part
            # What the file refers to goes first.
            for made in sorted(Path(folder).iterdir(), key=part.__eq__):
                made.replace(target.with_name(made.name))
    except OSError as error:
        reason = f"{error.strerror or error}; it is not written, make room or choose another place"
        raise OSError(error.errno or errno.EIO, reason, os.fspath(path)) from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, in UTF-8 whatever the locale, whole or not at all.

    Raises
    ------
    OSError
        It cannot be written; names `path`.
    """
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
