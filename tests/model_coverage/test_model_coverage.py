"""The command that measures which models can be exported, on a model of torch alone."""

import json

import pytest
import torch

from exporters.errors import ExportError
from tests.model_coverage.attempt import dynamic_shapes
from tests.model_coverage.model import Model
from tests.model_coverage.results import Exporter, Result, Results, Status
from tests.model_coverage.table import as_markdown


def test_dimensions_that_differ_are_dynamic():
    small, large = {"x": torch.zeros(2, 3), "n": 4}, {"x": torch.zeros(5, 3), "n": 4}
    assert dynamic_shapes(small, large) == {"x": {0: torch.export.Dim.AUTO}, "n": None}
    assert dynamic_shapes(small, small) is None


def test_results_are_resumed_and_shown(tmp_path):
    model = Model("BertModel", "encoders", "transformers", lambda: pytest.fail("it needs no model"))
    known = {model.name: model}
    results = Results.resume(tmp_path / "models.json")
    results.add(model, Exporter.TORCH, Result(Status.FAILED, "crash", "it | ended"))
    ours = Result(Status.DYNAMIC, difference=1e-6, decisions=3, custom_nodes={"pyops::Eigh": 2}, counterparts="93%")
    results.add(model, Exporter.OURS, ours)
    again = Results.resume(tmp_path / "models.json")
    page = as_markdown(known, again)
    assert "| BertModel | transformers | no | yes | 1e-06 | 3 | 2 pyops | 93% |" in page
    assert "The median of those measured is 93%" in page
    assert "it \\| ended" in page
    data = json.loads((tmp_path / "models.json").read_text())
    (tmp_path / "models.json").write_text(json.dumps({**data, "versions": {}}))
    with pytest.raises(ExportError, match="results of other versions"):
        Results.resume(tmp_path / "models.json")
