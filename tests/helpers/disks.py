"""A full disk, for as long as a test needs one."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(room: int = 1000) -> Iterator[None]:
    """Context manager: keep every file of this process from growing beyond `room` bytes."""
    import resource  # which Windows lacks

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
