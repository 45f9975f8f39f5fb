"""A model in Netron, with what is known of its custom nodes written into the picture."""

from __future__ import annotations

import logging
import re
import secrets
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._models import model
from .._tables import Part, Shown, html_parts
from ..errors import MissingDependencyError
from .inspection import CustomNode, ModelReport, custom_nodes, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

HEIGHT = 600


class View(Shown):
    """A model that is being shown: in a notebook Netron itself, in a terminal the address to open.

    Attributes
    ----------
    url : str
        Where Netron serves it, on this machine alone.
    report : ModelReport
        What is known of its custom nodes.
    """

    def __init__(self, netron: Any, proto: onnx.ModelProto, name: str, report: ModelReport, height: int) -> None:
        self.report = report
        self._netron, self._height = netron, height
        # Netron serves the files beside the one that it is told of: of a folder that is not there, none.
        folder = Path(tempfile.gettempdir()) / f"pyops-{secrets.token_hex(8)}"
        file = folder / re.sub(r"[^\w.-]", "_", name)
        self._address = _serve(netron, str(file), bytearray(proto.SerializeToString()))
        self.url = "http://{}:{}".format(*self._address)

    def close(self) -> None:
        """Serve it no longer."""
        self._netron.stop(self._address)

    def parts(self) -> list[Part]:
        """Where to look, and what is known of the custom nodes."""
        return [f"open {self.url} in a browser", *self.report.node_parts()]

    def _repr_html_(self) -> str:
        frame = f'<iframe src="{self.url}" width="100%" height="{self._height}" style="border: 0"></iframe>'
        link = f'<p><a href="{self.url}" target="_blank">{self.url}</a></p>'
        return f"{frame}{link}{html_parts(self.report.node_parts())}"


def show_model(source: model.ModelSource, *, height: int = HEIGHT) -> View:
    """Open a model in Netron, with the nodes marked that declared ops compute.

    Behind the op type of each custom node stands whether a kernel is declared for it; its properties
    name the kernel, its source line and its package. This is done on a copy: the model is not changed, and
    nothing is run or imported for it.

    Parameters
    ----------
    source : str, os.PathLike, bytes, onnx.ModelProto or torch.onnx.ONNXProgram
        The model.
    height : int
        Of Netron in a notebook, in pixels.

    Returns
    -------
    View
        In a notebook, the last line of a cell shows it. It is served until `View.close` or the end of the process.

    Raises
    ------
    MissingDependencyError
        netron is not installed.
    ModelError
        `source` is no ONNX model.

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
    loaded = model.load(source)
    report = inspect(loaded)
    name = Path(loaded.source).name if isinstance(loaded.source, str) else "model.onnx"
    return View(netron, marked(loaded, report), name, report, height)


def marked(loaded: model.Model, report: ModelReport) -> onnx.ModelProto:
    """A copy of a model in which its custom nodes say what would run them."""
    import onnx

    proto = onnx.ModelProto()
    if loaded.proto is not None:
        proto.CopyFrom(loaded.proto)
    copied = model.Model(b"", proto, loaded.folder)
    nodes = [node for node, _ in custom_nodes(copied)]
    for node, known in zip(nodes, report.nodes, strict=True):
        for key, value in _properties(known).items():
            node.metadata_props.add(key=f"pyops {key}", value=value)
        node.op_type += f" [{known.verdict}]"
    return proto


def _properties(node: CustomNode) -> dict[str, str]:
    facts = {"kernel": node.kernel, "engine": node.engine, "package": node.package}
    return {
        "verdict": node.verdict,
        **{name: value for name, value in facts.items() if value},
        **({"problem": "; ".join(node.problems)} if node.problems else {}),
    }


_lock = threading.Lock()


def _serve(netron: Any, file: str, data: bytearray, attempts: int = 3) -> tuple[str, int]:
    with _lock, _quiet():
        try:
            address: tuple[str, int] = netron.serve(file, data)
        except OSError:  # somebody took the port that it had found free
            if attempts == 1:
                raise
        else:
            _separate(address)
            return address
    return _serve(netron, file, data, attempts - 1)


def _separate(address: tuple[str, int]) -> None:
    """Give a server a model of its own: netron lets all servers of a process show the last one."""
    for thread in threading.enumerate():
        server = getattr(thread, "server", None)
        if server is not None and getattr(thread, "address", None) == address:
            shared = server.RequestHandlerClass
            server.RequestHandlerClass = type(shared.__name__, (shared,), {"content": shared.content})


@contextmanager
def _quiet() -> Iterator[None]:
    # Netron configures the root logger, which is the user's, if nobody has yet.
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
