"""``program.save``: the model and its weights are saved completely or not at all."""

import numpy as np
import pytest
import torch

import exporters
import pyops
from tests.helpers.disks import full_disk


@pytest.fixture(scope="module")
def program():
    return exporters.export(torch.nn.Linear(50, 50).eval(), (torch.zeros(1, 50),), verbose=False)


@pytest.mark.parametrize("external", [False, True])
def test_a_full_disk_loses_no_model(program, external, tmp_path):
    path = tmp_path / "model.onnx"
    program.save(path, external_data=external)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert len(before) == 1 + external
    for again in (False, True):
        with full_disk(), pytest.raises(OSError, match=r"File too large.*model\.onnx"):
            program.save(str(path), external_data=again)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert pyops.InferenceSession(path).run(None, {"input": np.zeros((1, 50), np.float32)})[0].shape == (1, 50)


def test_the_options_of_torch_are_taken(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program.save("whole.onnx")
    program.save("bare.onnx", include_initializers=False)
    assert (tmp_path / "bare.onnx").stat().st_size < (tmp_path / "whole.onnx").stat().st_size
