"""What a build made, as a table, as HTML, and as data for JSON."""

from __future__ import annotations

from dataclasses import dataclass

from .._tables import Part, Shown


@dataclass(frozen=True)
class BuiltOp:
    """An op of a library.

    Attributes
    ----------
    types : tuple of str
        The element types of its inputs that it is built for.
    ranks : tuple of str
        The ranks of its inputs; ``"any"`` where leading dimensions are taken together.
    functions : int
        The number of specializations.
    """

    name: str
    version: int
    types: tuple[str, ...]
    ranks: tuple[str, ...]
    functions: int


@dataclass(frozen=True, repr=False)
class BuildReport(Shown):
    """What `pyops.build` made.

    Attributes
    ----------
    path : str
        The path of the library.
    target, cpu : str
        What it is built for.
    ops : tuple of BuiltOp
        The ops in the library.
    size : int
        The size of the file in bytes.
    undefined_symbols : tuple of str
        The symbols that the library takes from the system; empty for files other than ELF.
    glibc : str
        The oldest glibc that it runs with, such as ``"2.17"``; empty if it needs none.
    oldest_onnxruntime : str
        The oldest ONNX Runtime that it runs in.
    warnings : tuple of str
        What is not in the library, or slower than it could be, and why.
    refused : tuple of str
        The ops that are not in the library, and why.
    """

    path: str
    target: str
    cpu: str
    ops: tuple[BuiltOp, ...]
    size: int
    undefined_symbols: tuple[str, ...]
    glibc: str
    oldest_onnxruntime: str
    warnings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def parts(self) -> list[Part]:
        """Return the lines and tables to display."""
        rows = [["op", "version", "types", "ranks", "functions"]]
        rows += [
            [op.name, str(op.version), ", ".join(op.types), " ".join(op.ranks), str(op.functions)] for op in self.ops
        ]
        glibc = f", glibc {self.glibc}" if self.glibc else ""
        return [
            f"{self.path}: {self.size:,} bytes for {self.target} ({self.cpu}), ONNX Runtime "
            f"{self.oldest_onnxruntime} or later{glibc}",
            rows,
            *(f"takes from the system: {' '.join(self.undefined_symbols)}" for _ in self.undefined_symbols[:1]),
            *(f"warning: {text}" for text in self.warnings),
            *(f"not built: {text}" for text in self.refused),
        ]
