"""Files are there whole or not at all, and errors name them."""

import contextlib
from pathlib import Path

import pytest

from pyops._support.atomic_files import whole_file, write_text
from tests.helpers.disks import full_disk
from tests.helpers.systems import needs_limits, needs_posix, needs_proc


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_what_was_there_is_replaced_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with whole_file(path) as part:
        part.write_text("new")
        part.with_name("beside.txt").write_text("more")
        assert path.read_text() == "old"
    assert contents(tmp_path) == {"a.txt": "new", "beside.txt": "more"}


@needs_limits
def test_where_it_fails_nothing_is_lost_and_nothing_left(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with full_disk(), pytest.raises(OSError, match=r"File too large; the file is not written: make room.*a\.txt"):
        write_text(path, "new" * 1000)
    with contextlib.suppress(KeyboardInterrupt), whole_file(path) as part:
        part.write_text("new")
        raise KeyboardInterrupt
    assert contents(tmp_path) == {"a.txt": "old"}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("none/b.txt", FileNotFoundError),
        pytest.param("a.txt/b.txt", NotADirectoryError, marks=needs_posix),
        pytest.param(".", IsADirectoryError, marks=needs_posix),
        pytest.param("/proc/b.txt", FileNotFoundError, marks=needs_proc),
        pytest.param("/dev/full", OSError, marks=needs_proc),
    ],
)
def test_an_error_is_of_its_own_type_and_names_the_file(tmp_path: Path, name: str, error: type[OSError]) -> None:
    write_text(tmp_path / "a.txt", "old")
    path = str(tmp_path / name)
    with pytest.raises(error) as caught:
        write_text(path, "new")
    assert caught.value.filename == path
    assert contents(tmp_path) == {"a.txt": "old"}


@needs_posix
def test_a_link_stays_one(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")
    (tmp_path / "link.txt").symlink_to("a.txt")
    write_text(tmp_path / "link.txt", "é")
    assert (tmp_path / "link.txt").is_symlink()
    assert contents(tmp_path) == {"a.txt": "é", "link.txt": "é"}
