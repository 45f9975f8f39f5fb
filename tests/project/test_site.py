"""The site, built."""

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ELSEWHERE = re.compile(r"\s*(\w+:)?//")
"""Where an address begins that leads to another host."""
LOADED_BY_CODE = re.compile(r"""(?:import\b[^;\n]*|@import\s*|url\()["']?(?:\w+:)?//[^"')\s]*""")


class Loaded(HTMLParser):
    """What a browser loads with a page, from elsewhere; links that a reader may follow are not among it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._runs = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._runs = tag in ("script", "style")
        loading = {"src", "srcset", "data", "poster"} | ({"href"} if tag == "link" else set())
        self.found += [value for name, value in attrs if name in loading and value and ELSEWHERE.match(value)]

    def handle_endtag(self, tag: str) -> None:
        self._runs = False

    def handle_data(self, data: str) -> None:
        if self._runs:
            self.found += LOADED_BY_CODE.findall(data)


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    for path in site.rglob("*.html"):
        yield from (f"{path.name}: {found}" for found in Loaded(path.read_text()).found)
    for pattern in ("*.css", "*.js"):
        for path in site.rglob(pattern):
            yield from (f"{path.name}: {found}" for found in LOADED_BY_CODE.findall(path.read_text()))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs", ".", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.exhaustive
def test_it_is_read_without_a_network(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 20
    assert list(loaded_from_elsewhere(site)) == []


@pytest.mark.parametrize("name", ["pyops", "pyops.shapes", "pyops.testing", "exporters"])
def test_the_reference_begins_with_a_table_of_the_public_names(name: str) -> None:
    module = importlib.import_module(name)
    page = (ROOT / f"docs/api/{name.partition('.')[0]}.md").read_text()
    table = page.partition(f".. currentmodule:: {name}\n")[2].partition(".. automodule")[0]
    values = {public: getattr(module, public) for public in module.__all__}
    named = {public for public, value in values.items() if inspect.isclass(value) or inspect.isroutine(value)}
    assert set(re.findall(r"^   (\w+)$", table, re.M)) == named


@pytest.mark.exhaustive
def test_its_reference_shows_no_private_class(site: Path) -> None:
    pages = [path.read_text() for path in (site / "docs/api").glob("*.html")]
    shown = [re.sub("<[^>]*>", "", base) for page in pages for base in re.findall(r"Bases: (.*)</p>", page)]
    assert any("PyopsError" in base for base in shown)
    assert [base for base in shown if "Displayable" in base or "LazySession" in base] == []


@pytest.mark.exhaustive
def test_its_code_can_be_copied_and_fits_a_phone(site: Path) -> None:
    assert "_static/copybutton.js" in (site / "index.html").read_text()
    narrow = (site / "_static/site.css").read_text().partition("@media (max-width: 46em)")[2]
    assert re.search(r"\.highlight pre[^}]*white-space: pre-wrap", narrow)


@pytest.mark.exhaustive
def test_its_commands_are_not_cut(site: Path) -> None:
    page = (site / "index.html").read_text()
    assert 'href="_static/site.css' in page
    assert "highlight-bash" in page
    assert re.search(r"\.highlight-bash pre[^}]*white-space: pre-wrap", (site / "_static/site.css").read_text())


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn/a.js"></script>',
        '<script type="module">import mermaid from "https://cdn/mermaid.mjs"; mermaid.run()</script>',
        '<link rel="stylesheet" href="//cdn/a.css">',
        "<style>@import url(https://cdn/a.css)</style>",
        '<img src="http://host/badge.svg">',
    ],
)
def test_what_it_may_not_have_is_found(page: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(f'{page}<a href="https://docs">read on</a><script src="a.js"></script>')
    assert len(list(loaded_from_elsewhere(tmp_path))) == 1
