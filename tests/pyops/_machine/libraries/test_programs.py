"""The program in C of ``docs/programs.md`` is compiled and run, as C and as C++."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

pytestmark = pytest.mark.exhaustive
PAGE = (Path(__file__).parents[4] / "docs" / "programs.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "build.py").write_text(block("python"))
    subprocess.run([sys.executable, "build.py"], cwd=folder, check=True)
    wheel = Path(onnxruntime.__file__).parent / "capi" / f"libonnxruntime.so.{onnxruntime.__version__}"
    (folder / "libonnxruntime.so.1").symlink_to(wheel)
    return folder


@pytest.mark.parametrize(("compiler", "source"), [(("cc", "-std=c11"), "c.c"), (("c++", "-std=c++17"), "cpp.cpp")])
def test_the_program_in_c_prints_what_the_page_says(compiler: tuple[str, ...], source: str, folder: Path) -> None:
    (folder / source).write_text(block("c"))
    flags = ["-Wall", "-Wextra", "-Werror", f"-I{Path(__file__).parent}", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*compiler, *flags, source, "-o", "program", "./libonnxruntime.so.1"], cwd=folder, check=True)
    for file in ("program", "libmy_ops.so"):
        linked = subprocess.run(["ldd", file], cwd=folder, capture_output=True, text=True, check=True).stdout
        assert "python" not in linked
    done = subprocess.run(["env", "-i", "./program"], cwd=folder, capture_output=True, text=True, check=True)
    assert f"$ ./program\n{done.stdout}```" in PAGE
