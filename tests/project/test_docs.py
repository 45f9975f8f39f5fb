"""What the README and the pages in docs show is what a reader gets.

The Python blocks of a page run one after the other in one process; of a diff, the code that it results in. A block
after ``<!-- output -->`` is what the Python block before it prints, but for spaces; one after
``<!-- not run: why -->`` is not run.
"""

import re
from pathlib import Path

import pytest

from tests.helpers.scripts import run_beside_torch
from tests.helpers.tiers import first_quick

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")), *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"(?:<!-- (output|not run: [^\n]+) -->\n)?```(\w*)\n(.*?)```", re.DOTALL)
# What pages need whose code does not import it.
NEEDED = {"engines.md": "onnxruntime_extensions", "testing.md": "onnxruntime_extensions", "replacing.md": "torch"}
SEPARATOR = "=== end of a block ==="
RUN = """
import linecache as _linecache
for _number, _block in enumerate(%r, 1):
    # Where inspect finds the source, which onnxscript wants; the names are those of __main__ for it too.
    _name = f"part{_number}.py"
    _linecache.cache[_name] = (len(_block), None, _block.splitlines(True), _name)
    exec(compile(_block, _name, "exec"))
    print(%r, flush=True)
"""


def blocks(page: Path) -> list[tuple[str, str | None]]:
    """Each Python block that is run, with what it is said to print."""
    found: list[tuple[str, str | None]] = []
    for mark, language, text in BLOCK.findall(page.read_text()):
        if mark == "output":
            found[-1] = (found[-1][0], text)
        elif language == "python" and not mark:
            found.append((text, None))
        elif language == "diff" and not mark:
            kept = [line[1:] for line in text.splitlines(keepends=True) if not line.startswith("-")]
            found.append(("".join(kept), None))
    return found


@pytest.mark.parametrize("page", first_quick(PAGES), ids=lambda page: page.name)
def test_the_examples_run_and_print_what_the_page_says(page, tmp_path):
    cells = blocks(page)
    if not cells:
        return
    if any("import torch" in code for code, _ in cells):
        pytest.importorskip("torch")
    if page.name in NEEDED:
        pytest.importorskip(NEEDED[page.name])
    done = run_beside_torch(RUN % ([code for code, _ in cells], SEPARATOR), tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "torchvision" not in done.stderr, "torch's exporter says that it is absent, which is no news to a reader"
    for (code, shown), printed in zip(cells, done.stdout.split(SEPARATOR), strict=False):
        assert shown is None or printed.split() == shown.split(), f"{code}\nprints\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_files_it_links_to_exist(page):
    links = [link.partition("#")[0] for link in re.findall(r"\]\((.*?)\)", page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_files_of_common_changes_exist():
    _, _, section = (ROOT / "docs/architecture.md").read_text().partition("## Common changes")
    named = re.findall(r"`([\w.*]+(?:/[\w.*]*)+)`", section.partition("\n## ")[0])
    assert [name for name in named if not list(ROOT.glob(name))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tests_it_names_exist(page):
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text())
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_the_messages_that_a_page_explains_are_those_of_the_code():
    table = (ROOT / "docs/messages.md").read_text().partition("## Of pyops and exporters\n")[2].partition("\n## ")[0]
    messages = re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE)
    parts = [part.strip() for message in messages for part in re.split(r"\.\.\.|\bX\b|'output'|[()]", message)]
    code = "".join(path.read_text() for package in ("pyops", "exporters") for path in (ROOT / package).rglob("*.py"))
    assert len(messages) > 10
    assert [part for part in parts if part not in code] == []
