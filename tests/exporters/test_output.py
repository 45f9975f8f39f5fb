"""What an export prints: only its progress, unless it is verbose."""

import contextlib
import io
import logging

import pytest
import torch

import exporters
from pyops._support import progress
from tests.helpers.scripts import run_beside_torch
from tests.helpers.tiers import exhaustive
from tests.pyops._support.test_progress import Terminal


def of_data(x):
    return x if x.sum() > 0 else x + 1


def export(function, **arguments):
    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    return exporters.export(Model().eval(), (torch.ones(2, 3),), **arguments)


@pytest.fixture
def log(monkeypatch):
    """What torch's handlers, and that of loggers without one, print."""
    log = io.StringIO()
    loggers = [item for item in logging.root.manager.loggerDict.values() if isinstance(item, logging.Logger)]
    torchs = [item for found in loggers if found.name.split(".")[0] == "torch" for item in found.handlers]
    for handler in torchs:
        if type(handler) is logging.StreamHandler:
            monkeypatch.setattr(handler, "stream", log)
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(log))
    return log


PRINTING = [
    pytest.param(lambda x: (x, None), {}, id="a warning of torch's"),
    pytest.param(torch.poisson, {"dynamo": False}, id="an error of TorchScript"),
    pytest.param(of_data, {"verbose": None}, id="an error of torch.export"),
    exhaustive(of_data, {"fallback": True}, id="two attempts"),
    exhaustive(lambda x: x.view(6), {"opset_version": 9}, id="another opset"),
    exhaustive(torch.relu, {"fallback": "verify", "verify": True}, id="verified"),
    exhaustive(lambda x: x @ torch.ones(7), {}, id="an error of the model"),
    exhaustive(torch.relu, {"verbose": False}, id="quiet on demand"),
]


@pytest.mark.parametrize(("function", "arguments"), PRINTING)
def test_nothing_is_printed(function, arguments, capfd, log):
    with contextlib.suppress(Exception):
        export(function, **arguments)
    assert (*capfd.readouterr(), log.getvalue()) == ("", "", "")


@pytest.mark.exhaustive
def test_explaining_an_error_prints_nothing(capfd, log):
    class Model(torch.nn.Module):
        def forward(self, x):
            return of_data(x)

    assert exporters.explain(Model(), (torch.ones(2),)).problem
    assert (*capfd.readouterr(), log.getvalue()) == ("", "", "")


MODEL = """
import logging, sys
import exporters, torch

class Model(torch.nn.Module):
    def forward(self, x):
        print("of the model")
        return x, None

model, args = Model().eval(), (torch.ones(2, 3),)
"""


def test_torchs_own_output_on_demand(tmp_path):
    exports = "exporters.export(model, args, verbose=True); print('then'); exporters.export(model, args)"
    done = run_beside_torch(MODEL + exports, tmp_path)
    loud, _, quiet = done.stdout.partition("then\n")
    assert "[torch.onnx] Translate the graph into ONNX" in loud
    assert done.stderr.count("has None output") == 1
    assert set(quiet.splitlines()) == {"of the model"}


def test_loggers_of_users_get_the_warnings(tmp_path):
    handler = "logging.getLogger('torch.onnx').addHandler(logging.StreamHandler(sys.stdout))\n"
    done = run_beside_torch(f"{MODEL}{handler}exporters.export(model, args)", tmp_path)
    assert "has None output" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"fallback": "verify"}, {"capturing the model", "translating calls: 0 of 2", "checking calls: 1 of 2"}),
        ({"dynamo": False, "verify": True}, {"exporting the model", "verifying the model", "comparing sample 1"}),
    ],
    ids=["checked calls", "TorchScript"],
)
def test_what_takes_long_says_what_it_does(arguments, expected, monkeypatch):
    steps = []
    doing = property(lambda line: "", lambda line, text: steps.append(text))
    monkeypatch.setattr(progress._Line, "doing", doing, raising=False)
    with contextlib.redirect_stderr(Terminal()):
        export(lambda x: torch.relu(x).neg(), **arguments)
    assert expected <= set(steps)
