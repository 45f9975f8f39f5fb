"""The README, the pages, the notebooks and the docstrings as a site.

``sphinx-build -W -c docs . build/site`` in the root of the repository, whose files link to each other as
they lie there.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyops

NAVIGATION = """
```{toctree}
:caption: Start
:hidden:

docs/installing
docs/concepts
docs/scope
docs/messages
docs/coming_from
```

```{toctree}
:caption: Notebooks
:glob:
:hidden:

docs/notebooks
notebooks/*
```

```{toctree}
:caption: Operators
:hidden:

docs/declaring
docs/shapes
docs/debugging
docs/inspecting
docs/testing
docs/plugins
docs/processes
docs/fill_missing
docs/precision
```

```{toctree}
:caption: PyTorch and export
:hidden:

docs/torch
docs/export
docs/decompositions
docs/replacing
docs/fallback
docs/kernel_library
```

```{toctree}
:caption: Speed
:hidden:

docs/compiled
docs/building
docs/programs
docs/cuda
```

```{toctree}
:caption: Reference
:hidden:

docs/api/pyops
docs/api/exporters
docs/command_line
docs/engines
docs/platforms
docs/releases
CHANGELOG
SECURITY
```

```{toctree}
:caption: Results
:hidden:

docs/benchmarks
docs/gpu
docs/coverage
docs/models
docs/replaced_models
docs/corrections
docs/node_tests
docs/tested_scenarios
```

```{toctree}
:caption: Development
:hidden:

CONTRIBUTING
docs/development
docs/architecture
docs/internals
```
"""

project = "pyops"
version = release = pyops.__version__
html_title = "pyops"
html_theme = "furo"
html_copy_source = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "README"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**.md", "notebooks/*.ipynb"]
exclude_patterns = [".*", "build", "dist"]

highlight_language = "none"
# Links may lead to headings.
myst_heading_anchors = 3
# A notebook shows what is committed; the tests run it.
nb_execution_mode = "off"

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
# Docstrings name the types; in signatures they would hide the parameters.
autodoc_typehints = "none"
# `InferenceSession` in a docstring is a link, where there is something to link to.
default_role = "py:obj"


def add_navigation(app: Any, page: str, source: list[str]) -> None:
    """Add to the README what its reader on the web needs and other readers do not."""
    if page == root_doc:
        source[0] += NAVIGATION


def copy_first_page(app: Any, failure: Exception | None) -> None:
    """Give the first page the name under which servers look for one."""
    if not failure:
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def leave_out_private_bases(app: Any, name: str, cls: type, options: Any, bases: list[Any]) -> None:
    """Show of a class's bases those that users can name."""
    private = "pyops._", "exporters._"
    bases[:] = [base for base in bases if not getattr(base, "__module__", "").startswith(private)] or [object]


def setup(app: Any) -> None:
    """Register the handlers; Sphinx calls this."""
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-bases", leave_out_private_bases)
    app.connect("build-finished", copy_first_page)
