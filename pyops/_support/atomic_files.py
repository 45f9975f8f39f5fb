"""Atomic writing of files."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path whose file replaces `path` at the end of the block.

    Files created beside it (external data) are moved beside `path` as well. If the block raises, nothing is
    replaced. A link, or a target that is not a regular file (``/dev/stdout``), is yielded itself and written directly.

    Raises
    ------
    OSError
        The file cannot be written; the error names `path`.
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
            # The file itself comes last (False sorts before True), so that it never refers to missing files.
            for made in sorted(Path(folder).iterdir(), key=part.__eq__):
                made.replace(target.with_name(made.name))
    except OSError as error:
        reason = f"{error.strerror or error}; the file is not written: make room, close it, or choose another place"
        raise OSError(error.errno or errno.EIO, reason, os.fspath(path)) from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, atomically.

    Raises
    ------
    OSError
        The file cannot be written; the error names `path`.
    """
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
