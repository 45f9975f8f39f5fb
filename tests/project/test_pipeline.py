"""An export goes from stage to stage, and enters few files."""

from __future__ import annotations

import pytest

from tests.helpers.scripts import run_beside_torch
from tests.project.import_graph import units

pytest.importorskip("torch")
MOST_FILES = 26
STAGES = ("exporters._capture", "exporters._plan", "exporters._lowering", "exporters._finishing")
COUNT = """
import pathlib, sys, torch, exporters, pyops

model, x = torch.nn.Sigmoid().eval(), torch.ones(3)
exporters.export(model, (x,))
folders = [str(pathlib.Path(package.__file__).parent) for package in (exporters, pyops)]
entered = set()

def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(tuple(folders)):
        entered.add(frame.f_code.co_filename)

sys.setprofile(profile)
exporters.export(model, (x,))
sys.setprofile(None)
print(*sorted(entered), sep="\\n")
"""


def test_the_export_of_a_sigmoid_enters_few_files(tmp_path):
    done = run_beside_torch(COUNT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) <= MOST_FILES, done.stdout


@pytest.mark.parametrize("stage", [*STAGES, "exporters._library", "exporters._fallback"])
def test_no_stage_imports_the_pipeline_or_its_end(stage):
    used = set(units().successors(stage))
    assert not used & ({"exporters._pipeline", "exporters._program", "exporters._export", STAGES[-1]} - {stage})


def test_the_capture_imports_no_later_stage():
    assert not set(units().successors(STAGES[0])) & set(STAGES[1:])


def test_torchs_exporter_gets_captured_programs_in_one_place():
    assert set(units().predecessors("exporters._pipeline")) == {"exporters._explain", "exporters._export"}
