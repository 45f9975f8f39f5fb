"""What the package says of itself that depends on the project's address, which pyproject.toml has, once.

hatchling runs it when it builds. Without an address there are no links; with one, the links of README.md to files lead
there, since an index shows README.md without the files beside it.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"\]\((?!\w+://|#)([^)]+)\)")


class PackageMetadata(MetadataHookInterface):
    """Adds the text of README.md and the links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to the metadata of pyproject.toml."""
        address = self.config["address"].rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if address:
            files = f"{address}/blob/v{metadata['version']}"
            text = RELATIVE_LINK.sub(rf"]({files}/\1)", text)
            metadata["urls"] = {
                "Source": address,
                "Issues": f"{address}/issues",
                "Changelog": f"{files}/CHANGELOG.md",
                "Documentation": f"{files}/README.md#documentation",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
