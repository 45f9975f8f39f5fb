"""What ops and sessions look like in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

import pyops
from pyops import Op, onnx_op
from tests.helpers.models import chain

T = TypeVar("T", np.float16, np.float32)
F32 = NDArray[np.float32]


class Page(HTMLParser):
    """The texts of a page; tags beside those of tables and paragraphs are not escaped ones."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("table", "thead", "tbody", "tr", "th", "td", "p", "b"), f"<{tag}> is not escaped"
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def op() -> Op[..., Any]:
    @onnx_op("paged::Scale", version=2)
    def scale(x: NDArray[T], bias: NDArray[T] | None = None, *rest: NDArray[T], mode: str = "<i>") -> NDArray[T]:
        """Scale <b>boldly</b>.

        And more.
        """
        return x

    return scale


def test_an_op_shows_what_it_takes_and_what_is_registered(op: Op[..., Any]) -> None:
    texts = Page(op._repr_html_()).texts
    assert texts[0] == "paged::Scale, version 2"
    assert "Scale <b>boldly</b>." in texts
    rows = " ".join(texts)
    for row in (
        "input x T (one of float16, float32)",
        "optional input bias T",
        "variadic input rest T",
        "attribute mode str = '<i>'",
        "output output T",
    ):
        assert row in rows
    assert texts[-1].startswith("kernels cpu · ")
    assert "test_notebook_display.py:" in texts[-1]
    op.register_shape_inference(lambda x, bias=None, *rest, mode: x)
    op.register_kernel("cuda")(lambda x, bias=None, *rest, mode: x)
    assert "kernels cpu, cuda, shape function" in Page(op._repr_html_()).texts[-1]


@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_a_session_shows_its_values_and_the_nodes_that_ops_compute(engine: str) -> None:
    @onnx_op("paged::Plus")
    def plus(x: F32) -> F32:
        return x + np.float32(1)

    model = chain("paged::Plus", "Neg", "paged::Plus")
    model.graph.node[0].name = "<first>"
    model.graph.input[0].type.tensor_type.shape.dim.add(dim_param="n")
    session = pyops.InferenceSession(model, engine=engine)
    for _ in range(2):
        text = " ".join(Page(session._repr_html_()).texts)
        assert f"ops hosted by the {engine} engine" in text
        assert "input x tensor(float) [n]" in text
        assert "<first> paged::Plus 1" in text
        assert "node2 paged::Plus 1" in text
        assert repr(session) == (
            f"<InferenceSession on CPUExecutionProvider, {engine} engine; inputs: x; outputs: y; "
            "nodes computed by ops: 2>"
        )
        with pyops.profile(session):
            assert "node2 paged::Plus 1" in " ".join(Page(session._repr_html_()).texts)


def test_a_session_without_ops_says_so() -> None:
    session = pyops.InferenceSession(chain("Neg"))
    assert "no node is computed by a declared op" in Page(session._repr_html_()).texts
