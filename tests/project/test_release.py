"""The package, as it is released."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyops._support.tested_releases import TESTED

ROOT = Path(__file__).parents[2]
SCRIPT = ".ci/release.py"


def test_there_is_no_release_without_an_address(tmp_path: Path) -> None:
    script = tmp_path / SCRIPT
    script.parent.mkdir()
    shutil.copy(ROOT / SCRIPT, script)
    project = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(re.sub(r'\naddress = ".*?"', '\naddress = ""', project))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the project has no address: set it in pyproject.toml" in done.stderr


def test_the_page_says_which_releases_are_tested() -> None:
    page = (ROOT / "docs/releases.md").read_text()
    assert [package for package, ends in TESTED.items() if " to ".join(ends) not in page] == []


@pytest.mark.parametrize("address", ["", "https://forge.example/pyops/"])
def test_links_of_the_readme_work_on_an_index(address: str) -> None:
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("package_metadata", ROOT / ".ci/package_metadata.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    metadata = {"version": "0.3.0"}
    module.PackageMetadata(str(ROOT), {"address": address}).update(metadata)
    links = re.findall(r"\]\((.*?)\)", metadata["readme"]["text"])
    relative = [link for link in links if not link.startswith(("https://", "#"))]
    assert bool(relative) == (not address)
    if address:
        assert f"{address}blob/v0.3.0/docs/shapes.md" in links
        assert all(url.startswith(address.rstrip("/")) for url in metadata["urls"].values())
    else:
        assert "urls" not in metadata


@pytest.mark.exhaustive
def test_the_wheel_works_outside_of_the_checkout(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", ROOT.as_uri(), clone], check=True)
    command = [sys.executable, SCRIPT, "--rehearse", "--extras", "cpu"]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "upload: python -m twine upload dist/onnx_pyops-" in done.stdout
