"""Makes a release: builds wheel and sdist into dist/, checks them, and tries the wheel outside of the checkout.

    python .ci/release.py                           # stops where the project has no address, or HEAD no tag
    python .ci/release.py --rehearse --extras cpu   # all but that, of these extras alone

Nothing is uploaded; at the end it prints the command that does. docs/releases.md has the steps around it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n<!-- output -->\n```\n(.*?)```", re.DOTALL)
CALL = """
import numpy, pyops
from numpy.typing import NDArray
@pyops.onnx_op("release::Double")
def double(x: NDArray[numpy.float32]) -> NDArray[numpy.float32]:
    return x + x
assert double(numpy.ones(2, numpy.float32)).tolist() == [2, 2]
assert "site-packages" in pyops.__file__, pyops.__file__
"""


def main() -> None:
    """Build, check and try; stop at the first fault with what is to be done."""
    extras = list(PYPROJECT["project"]["optional-dependencies"])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="go on without an address and a tag")
    parser.add_argument("--extras", nargs="+", choices=extras, default=extras, help="extras to try; default: each")
    options = parser.parse_args()
    if not options.rehearse:
        check_checkout()
    with tempfile.TemporaryDirectory() as folder:
        tools = environment(folder, "build", "twine")
        wheel, sdist = build(tools)
        check_files(wheel, sdist)
        run(tools, "-m", "twine", "check", "--strict", wheel, sdist)
    for extra in options.extras:
        print(f"the wheel with the extra {extra}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            run(environment(folder, f"{wheel}[{extra}]"), "-I", "-c", CALL, cwd=folder)
    if "torch" in options.extras:
        try_example(wheel)
    print(f"upload: python -m twine upload {wheel.relative_to(ROOT)} {sdist.relative_to(ROOT)}")


def check_checkout() -> None:
    """Stop unless the project has an address, and HEAD is the tag of the version, without changes."""
    if not PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["address"]:
        sys.exit("the project has no address: set it in pyproject.toml, [tool.hatch.metadata.hooks.custom]")
    version = re.search(r'__version__ = "(.*?)"', (ROOT / "pyops/__init__.py").read_text(encoding="utf-8"))
    tag = f"v{version[1]}" if version else sys.exit("pyops/__init__.py has no __version__")
    if tag not in git("tag", "--points-at", "HEAD") or git("status", "--porcelain"):
        sys.exit(f"HEAD is not {tag}, or there are changes: commit them, and `git tag {tag}`")
    if f"## {tag[1:]} (" not in (text := (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) or "(unreleased)" in text:
        sys.exit(f"CHANGELOG.md needs a heading with the day: ## {tag[1:]} (2026-01-31)")


def build(tools: Path) -> tuple[Path, Path]:
    """Build a wheel from the checkout, and an sdist, of which the same wheel must come."""
    for old in DIST.glob("onnx_pyops-*"):
        old.unlink()
    run(tools, "-m", "build", "--wheel", "--outdir", DIST, ROOT)
    (wheel,) = DIST.glob("*.whl")
    files = contents(wheel)
    run(tools, "-m", "build", "--outdir", DIST, ROOT)  # the sdist, and of it the wheel
    if contents(wheel) != files:
        sys.exit(f"{wheel.name}: the sdist makes another wheel than the checkout")
    (sdist,) = DIST.glob("*.tar.gz")
    return wheel, sdist


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check_files(wheel: Path, sdist: Path) -> None:
    """Stop if either has a file that git does not have, or lacks one."""
    tracked = set(git("ls-files"))
    packages = {name for name in tracked if name.startswith(("pyops/", "exporters/"))}
    check_names(wheel, packages, (name for name in contents(wheel) if ".dist-info/" not in name))
    with tarfile.open(sdist) as archive:
        members = [member.name.partition("/")[2] for member in archive.getmembers() if not member.isdir()]
    check_names(sdist, tracked, (name for name in members if name != "PKG-INFO"))


def check_names(archive: Path, expected: Iterable[str], found: Iterable[str]) -> None:
    """Stop if the names of an archive's files are others than expected."""
    if wrong := set(expected) ^ set(found):
        sys.exit(f"{archive.name} has, or lacks, and git does not: {', '.join(sorted(wrong))}")


def try_example(wheel: Path) -> None:
    """Run the example of README.md, which needs torch, in a new environment and folder; compare what it prints."""
    print("the example of README.md", flush=True)
    example = EXAMPLE.search((ROOT / "README.md").read_text(encoding="utf-8")) or sys.exit("README.md has no example")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "example.py").write_text(example[1], encoding="utf-8")
        shown = run(environment(folder, f"{wheel}[cpu,torch]"), "-I", "example.py", cwd=folder)
    if shown.split() != example[2].split():
        sys.exit(f"README.md's example prints\n{shown}\ninstead of\n{example[2]}")


def environment(folder: str, *requirements: str) -> Path:
    """Make an environment with some packages in a folder; return its interpreter."""
    place = Path(folder) / ".venv"
    venv.create(place, with_pip=True)
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(python, "-m", "pip", "install", "--quiet", *requirements)
    return python


def run(python: Path, *arguments: str | Path, cwd: Path | str = ROOT) -> str:
    """Run an interpreter; return what it prints, and stop if it fails."""
    done = subprocess.run([python, *arguments], cwd=cwd, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(map(str, arguments))}")
    return done.stdout


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    main()
