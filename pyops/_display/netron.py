"""Models shown in Netron, with their custom nodes annotated."""

from __future__ import annotations

import logging
import re
import secrets
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import Model, ModelSource, load_model
from .._support.locks import RLock
from .._support.text_tables import Displayable, Part, html_parts
from ..errors import MissingDependencyError
from .inspection import CustomNode, ModelReport, custom_nodes, inspect

if TYPE_CHECKING:
    import onnx

HEIGHT = 600


class View(Displayable):
    """A model shown in Netron: embedded in a notebook, or at an address to open in a terminal.

    Attributes
    ----------
    url : str
        The address that Netron serves it at, reachable from this machine only.
    report : ModelReport
        The report on its custom nodes.
    """

    def __init__(self, netron: Any, proto: onnx.ModelProto, name: str, report: ModelReport, height: int) -> None:
        self.report = report
        self._netron, self._height = netron, height
        # Netron serves all files in the given file's folder; this folder does not exist, so there are none.
        folder = Path(tempfile.gettempdir()) / f"pyops-{secrets.token_hex(8)}"
        file = folder / re.sub(r"[^\w.-]", "_", name)
        self._address = _serve(netron, str(file), bytearray(proto.SerializeToString()))
        self.url = "http://{}:{}".format(*self._address)

    def close(self) -> None:
        """Stop serving the model."""
        self._netron.stop(self._address)

    def parts(self) -> list[Part]:
        """Return the parts to display: the address, and the report on the custom nodes."""
        return [f"open {self.url} in a browser", *self.report.node_parts()]

    def _repr_html_(self) -> str:
        frame = f'<iframe src="{self.url}" width="100%" height="{self._height}" style="border: 0"></iframe>'
        link = f'<p><a href="{self.url}" target="_blank">{self.url}</a></p>'
        return f"{frame}{link}{html_parts(self.report.node_parts())}"


def show_model(source: ModelSource, *, height: int = HEIGHT) -> View:
    """Open a model in Netron, with its custom nodes annotated.

    The op type of each custom node is followed by whether a kernel is declared for it; the node's properties name the
    kernel, its source line and its package. The annotations are made on a copy: the model is not changed, and nothing
    is run or imported for it.

    Parameters
    ----------
    source : str, os.PathLike, bytes, onnx.ModelProto or torch.onnx.ONNXProgram
        The model.
    height : int
        The height of Netron in a notebook, in pixels.

    Returns
    -------
    View
        As the last line of a notebook cell, it is displayed. The model is served until `View.close` or process exit.

    Raises
    ------
    MissingDependencyError
        netron is not installed.
    ModelError
        `source` is not an ONNX model.

    Examples
    --------
    >>> import onnx, pyops
    >>> view = pyops.show_model(onnx.parser.parse_model('''
    ... <ir_version: 10, opset_import: ["": 20, "showing": 1]>
    ... main (float[n] x) => (float[n] y) { y = showing.Unheard(x) }'''))
    >>> view.report.nodes[0].verdict
    'not declared'
    >>> view.close()
    """
    try:
        import netron
    except ImportError as error:
        raise MissingDependencyError(
            'pyops.show_model needs netron, which is not installed: pip install "onnx-pyops[notebook]"'
        ) from error
    loaded = load_model(source)
    report = inspect(loaded)
    name = Path(loaded.source).name if isinstance(loaded.source, str) else "model.onnx"
    return View(netron, marked(loaded, report), name, report, height)


def marked(loaded: Model, report: ModelReport) -> onnx.ModelProto:
    """Return a copy of a model with its custom nodes annotated from the report."""
    import onnx

    proto = onnx.ModelProto()
    if loaded.proto is not None:
        proto.ParseFromString(loaded.serialized())  # Netron shows values
    copied = Model(b"", proto, loaded.folder)
    nodes = [node for node, _ in custom_nodes(copied)]
    for node, known in zip(nodes, report.nodes, strict=True):
        for key, value in _properties(known).items():
            node.metadata_props.add(key=f"pyops {key}", value=value)
        node.op_type += f" [{known.verdict}]"
    return proto


def _properties(node: CustomNode) -> dict[str, str]:
    problems = "; ".join(node.problems)
    facts = {"verdict": node.verdict, "kernel": node.kernel, "engine": node.engine, "package": node.package}
    return {name: value for name, value in {**facts, "problem": problems}.items() if value}


_lock = RLock()


def _serve(netron: Any, file: str, data: bytearray) -> tuple[str, int]:
    # Netron configures the root logger if it is not configured yet; that is left to the user's program.
    root, handler = logging.getLogger(), logging.NullHandler()
    with _lock:
        root.addHandler(handler)
        try:
            address: tuple[str, int] = netron.serve(file, data)
        finally:
            root.removeHandler(handler)
        _separate(address)
        return address


def _separate(address: tuple[str, int]) -> None:
    """Give a server its own model; Netron makes all servers of a process show the last one."""
    for thread in threading.enumerate():
        server = getattr(thread, "server", None)
        if server is not None and getattr(thread, "address", None) == address:
            shared = server.RequestHandlerClass
            server.RequestHandlerClass = type(shared.__name__, (shared,), {"content": shared.content})
