"""Capture of models whose Python code depends on values: what is fixed is listed, recorded, warned of and guarded."""

import re
import warnings
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
import torch
from torch.nn import functional

import exporters
import pyops
from exporters import CaptureWarning, ExportError
from pyops._display.inspection import inspect
from tests.exporters._capture import capture_models as models
from tests.exporters._capture.capture_models import Affine
from tests.helpers.tiers import exhaustive

X = torch.tensor([[0.1, 0.2, 0.3], [0.9, 0.5, 0.6]])


class Case(NamedTuple):
    model: torch.nn.Module
    args: tuple[Any, ...]
    decisions: list[tuple[str, str, str]]
    """Of a trace: kind, value and source."""
    others: tuple[Any, ...] = ()
    """Arguments with which a decision would be another one; none if there are none."""


CASES = {
    "if on a buffer": Case(Affine(models.if_on_a_buffer, flag=torch.tensor(True)), (X,), [("branch", "True", "state")]),
    "loop over a buffer": Case(
        Affine(models.loop_over_a_buffer, steps=torch.tensor([2, 3])), (X,), [("number", "3", "state")]
    ),
    "if on a sum": Case(Affine(models.if_on_a_sum), (X,), [("branch", "True", "inputs")], (-X,)),
    "loop over item()": Case(
        Affine(models.loop_over_an_item), (X, torch.tensor(3)), [("number", "3", "inputs")], (X, torch.tensor(2))
    ),
    "while": Case(
        Affine(models.while_on_a_sum),
        (X,),
        [*[("branch", "True", "inputs")] * 3, ("branch", "False", "inputs")],
        (8 * X,),
    ),
    "list of sizes": Case(
        Affine(models.list_of_sizes),
        (X, torch.tensor([1, 1])),
        [("values", "[1, 1]", "inputs")],
        (X, torch.tensor([0, 2])),
    ),
    "rows": Case(Affine(models.chosen_rows), (X,), [("size", "float32[1, 3]", "inputs")], (X + 1,)),
    "numpy": Case(Affine(models.values_in_numpy), (X,), [("values", "float32[2, 3]", "inputs")], (X + 1,)),
    "dlpack": Case(Affine(models.values_by_dlpack), (X,), [("values", "float32[2, 3]", "inputs")], (X + 1,)),
    "checked distribution": Case(
        Affine(models.checked_distribution), (X,), [("branch", "True", "inputs")] * 3, (X * np.nan,)
    ),
    "distribution": Case(Affine(models.distribution), (X,), []),
    "written": Case(Affine(models.if_on_what_was_written), (X,), [("branch", "True", "inputs")], (-X,)),
    "chance": Case(Affine(models.if_on_chance), (X,), [("branch", "True", "random")]),
    "number": Case(Affine(models.if_on_a_number), (X,), []),
    "one element": Case(
        Affine(models.one_element), (X,), [("branch", "True", "inputs"), ("number", "0.5", "inputs")], (-X,)
    ),
    "counts without a tag": Case(
        Affine(models.counts_without_a_tag),
        (X, torch.tensor([1, 2])),
        [
            ("size", "int64[2] and int64[2]", "inputs"),
            ("size", "int64[6] and int64[6]", "inputs"),
            ("size", "float32[3, 3]", "inputs"),
            ("size", "int64[2, 3]", "inputs"),
            ("size", "float32[1, 3] and float32[1, 3] and float32[0, 3]", "inputs"),
        ],
        (X, torch.tensor([1, 3])),
    ),
    "told counts": Case(Affine(models.told_counts), (X, torch.tensor([1, 2])), []),
    "rows by where": Case(
        Affine(models.rows_by_where),
        (X,),
        [
            ("size", "int64[2] and int64[2]", "inputs"),
        ],
        (X + 1,),
    ),
}


def export(case: Case, **arguments: Any) -> exporters.Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        return exporters.export(case.model, case.args, verbose=False, **arguments)


SEEN_IN_GUARDS = {"if on a sum", "loop over item()", "rows", "written"}


@pytest.mark.parametrize("name", [exhaustive(name) if name in SEEN_IN_GUARDS else name for name in CASES])
def test_a_trace(name):
    case = CASES[name]
    program = export(case, capture="trace")
    assert [(item.kind, item.value, item.depends_on) for item in program.decisions] == case.decisions
    assert {item.file for item in program.decisions} <= {models.__file__}
    assert exporters.verify(case.model, case.args, program).ok
    assert not {node.op_type for node in program.model.graph} & {"Guard", "_local_scalar_dense"}


@pytest.mark.parametrize(
    ("function", "expression"),
    [
        (models.values_in_numpy, "x.numpy()"),
        (models.values_by_dlpack, "np.from_dlpack(x)"),
        (lambda model, x: x + len(sorted((2 * x)[0].tolist())), "(2 * x)[0].tolist()"),
        (lambda model, x: x + len((x + 1).tolist()) + "äö".count("ä"), "(x + 1).tolist()"),
    ],
)
def test_values_that_leave_torch_are_named_by_the_code_that_reads_them(function, expression):
    (decision,) = export(Case(Affine(function), (X,), []), capture="trace").decisions
    assert decision.expression == expression
    assert f" ({decision.kind} of {expression}: {decision.value}, from inputs)" in repr(decision)


def test_a_branch_is_the_condition_of_its_line():
    (decision,) = export(CASES["if on a sum"], capture="trace").decisions
    assert decision.expression == ""
    assert repr(decision).endswith("if x.sum() > 0: (branch True, from inputs)")


AUTO = [
    ("if on a buffer", [("branch", "True", "state")]),
    ("loop over a buffer", [("number", "3", "state")]),
    ("if on a sum", [("branch", "True", "inputs")]),
    ("loop over item()", [("number", "3", "inputs")]),
    exhaustive("while", [*[("branch", "True", "inputs")] * 3, ("branch", "False", "inputs")]),
    ("rows", []),
    ("distribution", []),
    exhaustive("numpy", []),
    exhaustive("number", []),
    exhaustive("checked distribution", [("branch", "True", "inputs")] * 3),
    ("one element", [("branch", "True", "inputs")] * 2),
]


@pytest.mark.parametrize(("name", "decisions"), AUTO)
def test_auto_fixes_no_more_than_it_must(name, decisions):
    case = CASES[name]
    program = export(case, capture="auto")
    assert [(item.kind, item.value, item.depends_on) for item in program.decisions] == decisions
    assert {item.file for item in program.decisions} <= {models.__file__}
    assert exporters.verify(case.model, case.args, program).ok


def test_a_draft_tells_what_a_decision_depends_on():
    """The condition on the inputs is what known values of the state do not suffice for."""

    def function(model, x, count):
        if torch.rand(()) < 2:
            x = x + 1
        if model.steps.max().item() > 2:
            x = x * 2
        for _ in range(count.item()):
            x = x + 1
        return x

    program = export(Case(Affine(function, steps=torch.tensor([2, 3])), (X, torch.tensor(2)), []), capture="auto")
    found = [(item.kind, item.value, item.depends_on) for item in program.decisions]
    assert found == [("branch", "True", "random"), ("branch", "True", "state"), ("number", "2", "inputs")]


@pytest.mark.parametrize("capture", [exhaustive("trace"), "auto"])
def test_every_branch_is_listed(capture):
    """The code asks for more conditions with other arguments, and the list grows by as many."""
    case = CASES["while"]
    counts = []
    for factor in (1, 8):
        asked = []

        def counted(model, x, asked=asked):
            while asked.append(x.sum()) or asked[-1] < 20:
                x = 2 * x
            return x

        program = export(Case(Affine(counted), (factor * X,), []), capture=capture)
        asked.clear()
        counted(case.model, factor * X)
        counts.append(len(asked))
        assert len(program.decisions) == len(asked)
    assert counts == [4, 1]


def test_what_was_fixed_is_told_recorded_and_shown(tmp_path):
    case = CASES["loop over item()"]
    with pytest.warns(CaptureWarning, match=r"1 value .*\n  capture_models.py:\d+: for step in range") as told:
        program = exporters.export(case.model, case.args, tmp_path / "model.onnx", verbose=False, capture="trace")
    assert [item.filename for item in told] == [__file__]
    (decision,) = program.decisions
    expected = f"{decision.place}: for step in range(count.item()): (number 3, from inputs)"
    assert repr(decision) == expected
    report = inspect(tmp_path / "model.onnx")
    assert report.decisions == (expected,)
    assert expected in str(report)


@pytest.mark.filterwarnings("ignore:Exporting a model while it is in training mode:UserWarning")
@pytest.mark.parametrize("way", ["export", exhaustive("trace"), exhaustive("captured by the user")])
@pytest.mark.parametrize("name", ["one", "dropout", "many"])
def test_random_numbers_are_told_with_their_lines(name, way):
    model, options = Affine(getattr(models, f"draws_{name}")).train(), {"capture": way}
    if way == "captured by the user":
        model, options = torch.export.export(model, (X,)), {}
    with pytest.warns(
        CaptureWarning, match="the exported model draws random numbers: different ones in each run"
    ) as told:
        exporters.export(model, (X,), verbose=False, **options)
    (text,) = [str(item.message) for item in told if item.category is CaptureWarning]
    assert {item.filename for item in told if item.category is CaptureWarning} == {__file__}
    first, *others = text.splitlines()[1:]
    call, line, more = {
        "one": ("aten.randn.default", "return x @ torch.randn(3, 4)", []),
        "dropout": ("aten.native_dropout.default", "dropped = nn.functional.dropout(x, 0.3, model.training)", []),
        "many": ("aten.normal_functional.default", "x = x + torch.empty(3).normal_()", ["  and 2 more"]),
    }[name]
    if way == "captured by the user":  # torch then keeps only the lines of modules
        line = "return self.function(self, *args)"
    assert re.fullmatch(rf"  {re.escape(call)} at .*capture_models\.py:\d+: {re.escape(line)}", first)
    assert others == more


def test_random_numbers_in_branches_are_told():
    def drawn(x):
        return x + torch.rand(3)

    model = Affine(lambda module, x: torch.cond(x.sum() > 0, drawn, torch.neg, (x,)))
    with pytest.warns(CaptureWarning, match=r"  aten.rand.default at .*: return x \+ torch.rand\(3\)$"):
        exporters.export(model, (X,), verbose=False)


NOT_RANDOM = {
    "dropout for evaluation": lambda x: functional.dropout(x, 0.5, False),
    "dropout of nothing": lambda x: functional.dropout(x, 0.0, True),
    "dropout of everything": lambda x: torch.native_dropout(x, 1.0, True)[0],
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x),
    "leaky": lambda x: functional.rrelu(x),
    "never used": lambda x: (torch.rand(()), x + 1)[1],
    "seeded": lambda x: (torch.manual_seed(0), x + 1)[1],
}


@pytest.mark.parametrize("name", NOT_RANDOM)
@pytest.mark.parametrize("capture", ["export", exhaustive("trace")])
def test_nothing_is_told_where_nothing_is_drawn(name, capture):
    module = Affine(lambda module, x: NOT_RANDOM[name](x))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        program = exporters.export(module, (X,), verbose=False, capture=capture)
    assert exporters.verify(module, (X,), program).ok


def test_nothing_is_told_where_nothing_is_fixed():
    with warnings.catch_warnings():
        warnings.simplefilter("error", CaptureWarning)
        program = exporters.export(CASES["number"].model, (X,), verbose=False, capture="auto")
    assert program.decisions == ()
    assert "pyops.decisions" not in program.model.metadata_props


SEEN_IN_TRACES = {"while", "numpy"}
GUARDED = [exhaustive(name) if name in SEEN_IN_TRACES else name for name, case in CASES.items() if case.others]


@pytest.mark.parametrize("name", GUARDED)
def test_a_guard_raises_where_a_decision_falls_differently(name):
    case = CASES[name]
    program = export(case, capture="trace", guards=True)
    assert [(item.kind, item.value, item.depends_on) for item in program.decisions] == case.decisions
    assert all(item.guarded for item in program.decisions)
    assert exporters.verify(case.model, case.args, program).ok
    with pytest.raises(Exception, match=r"expected the .* as in the export, capture_models.py:\d+"):
        program(*case.others)


def test_a_guarded_model_runs_in_plain_onnx_runtime(tmp_path):
    case = CASES["if on a sum"]
    export(case, f=tmp_path / "model.onnx", capture="auto", guards=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    session.run(None, {session.get_inputs()[0].name: X.numpy()})
    with pytest.raises(Exception, match="expected the condition true as in the export"):
        session.run(None, {session.get_inputs()[0].name: -X.numpy()})


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x: x.real * abs(x[0, 0].item()),
        lambda model, x: x if x.real.sum() > 0 else -x,
        exhaustive(lambda model, x: x[x.real > 0.5].real),
    ],
)
def test_what_is_complex_is_listed_without_a_guard(function):
    program = export(Case(Affine(function), (X * (1 + 1j),), []), capture="trace", guards=True)
    assert [item.guarded for item in program.decisions] == [False]


def test_the_warning_says_what_guards_do():
    case = CASES["if on a sum"]
    with pytest.warns(
        CaptureWarning,
        match="1 guarded: a run in which one of these would differ is an error\n",
    ):
        exporters.export(case.model, case.args, verbose=False, capture="auto", guards=True)


def test_an_unguarded_model_computes_the_branch_of_the_example():
    case = CASES["if on a sum"]
    program = export(case, capture="auto")
    np.testing.assert_allclose(program(-X)[0], case.model.linear(-X).detach(), rtol=1e-5)


def test_a_trace_names_the_sizes_that_were_to_be_dynamic():
    case = CASES["if on a sum"]
    program = export(case, capture="trace", dynamic_shapes=(({0: "batch"},),))
    size, branch = program.decisions
    assert (size.kind, size.value, size.guarded) == ("size", "args[0].shape[0] == 2", True)
    assert branch.kind == "branch"


@pytest.mark.parametrize("capture", ["export", "auto"])
def test_a_condition_on_a_dynamic_size_is_listed(model, capture):
    def function(x, y):
        half = x[: x.shape[0] // 2]  # a slice asks for the same in every run
        if x.shape[0] > 5 and y.shape[0] != 7:
            half = half * 2
        return half, torch.nn.functional.pad(y, (1, 1))

    sizes = ({0: torch.export.Dim.DYNAMIC}, {0: torch.export.Dim.AUTO})
    with pytest.warns(
        CaptureWarning,
        match="the export specialized 2 values that the model's Python code reads to those of the example",
    ):
        program = exporters.export(
            model(function), (torch.ones(8, 2), torch.ones(4, 2)), dynamic_shapes=sizes, capture=capture
        )
    found = [(item.kind, item.value.partition(".")[2], item.line, item.guarded) for item in program.decisions]
    line = function.__code__.co_firstlineno + 2
    assert found == [("size", "shape[0] > 5", line, True), ("size", "shape[0] != 7", line, True)]


@pytest.mark.parametrize("ask", [lambda x: x.min() < 0, lambda x: x.numpy()[0] < 0, lambda x: x[0].item() < 0])
def test_code_that_catches_the_exception_of_a_capture_is_refused(model, ask):
    def function(x):
        try:
            return x + 1 if ask(x) else x - 1
        except Exception:
            return x * 100

    x = torch.tensor([-1.0, 2.0])
    with pytest.raises(ExportError, match=r"the model's code catches .*test_capture.py:\d+: .*(ask\(x\)|lambda x)"):
        exporters.export(model(function), (x,))
    with pytest.warns(CaptureWarning):
        program = exporters.export(model(function), (x,), capture="auto")
    assert program(x)[0].tolist() == [0, 3]


@pytest.mark.parametrize(
    ("code", "name"),
    [(lambda x: x * round(float(x[0, 0])), "round"), (lambda x: x.roll(x.argmax().item() % 3, 0), "aten::roll")],
)
def test_a_call_on_a_number_that_has_no_translation(model, code, name):
    function = model(code)
    with pytest.raises(ExportError, match=rf"{name} has no translation for .*test_capture.py:\d+: .*\n  capture="):
        exporters.export(function, (X,))
    with pytest.warns(CaptureWarning, match="number"):
        program = exporters.export(function, (X + 1,), capture="auto")
    np.testing.assert_array_equal(program(X + 1)[0], code(X + 1))


# ONNX Runtime has no product of bfloat16.
@pytest.mark.filterwarnings("ignore:ONNX Runtime has no kernel:pyops.errors.FilledNodeWarning")
@pytest.mark.parametrize("capture", [exhaustive("trace"), "auto"])
def test_autocast_regions(model, capture):
    def function(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = (x @ x.T).float()
        return y * 2 if y.sum() > 0 else y

    with pytest.warns(CaptureWarning, match="branch True"):
        program = exporters.export(model(function), (X,), capture=capture)
    session = pyops.InferenceSession(program, fill_missing=True)
    np.testing.assert_allclose(session.run(None, {session.get_inputs()[0].name: X.numpy()})[0], function(X), rtol=1e-2)


class Weights(torch.nn.Module):
    """Holds weights that it does not register, of which a draft export reads memory that nobody wrote."""

    def __init__(self, limit):
        super().__init__()
        self.inner = [torch.nn.Linear(3, 3)]
        self.limit = limit

    def forward(self, x):
        y = self.inner[0](x)
        return y * 2 if y.abs().sum() > self.limit else y + 100


@pytest.mark.parametrize("limit", [-1.0, 1e4])
def test_a_branch_is_that_of_the_example(limit):
    model = Weights(limit).eval()
    with pytest.warns(CaptureWarning, match=f"branch {limit < 0}"):
        program = exporters.export(model, (X,), capture="auto", verbose=False)
    np.testing.assert_allclose(program(X)[0], model(X).detach(), 1e-5, 1e-6)


@pytest.mark.parametrize("size", [lambda x: x.shape[0], exhaustive(len)])
def test_a_size_of_zero_is_refused_where_the_code_asks_for_it(model, size):
    function = model(lambda x: x.sum() + 4 if size(x) == 0 else x.sum() + 2)
    sizes = ({0: torch.export.Dim.AUTO},)
    with pytest.raises(ExportError, match=r"test_capture.py:\d+.*\n  torch.export takes a dynamic size of 0 or 1"):
        exporters.export(function, (torch.zeros(0, 2),), dynamic_shapes=sizes)
    with pytest.warns(CaptureWarning, match=r"shape\[0\] == 0"):
        program = exporters.export(function, (torch.zeros(0, 2),), dynamic_shapes=sizes, capture="auto")
    assert program(torch.zeros(0, 2))[0] == 4


def test_a_failed_capture_leaves_no_marks_on_the_arguments(model):
    x = torch.randn(2, 3)
    with pytest.raises(ExportError):
        exporters.export(model(lambda x: x.reshape(2, 3)), (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert not vars(x)


def test_a_size_that_a_draft_fixes_is_listed(model):
    def function(x):
        found = [torch.nonzero(row > 0.3) for row in x]
        return torch.zeros(max(len(item) for item in found)) + len(found)

    sizes = ({0: torch.export.Dim.DYNAMIC},)
    with pytest.warns(CaptureWarning, match=r"shape\[0\] == 2, from inputs, guarded"):
        program = exporters.export(model(function), (X,), dynamic_shapes=sizes, capture="auto")
    assert pyops.InferenceSession(program).get_inputs()[0].shape == [2, 3]


def test_a_draft_assumes_no_size_to_be_larger_than_one(model):
    weights = torch.tensor([1.0, 2.0, 3.0])

    def function(x):
        y = x * weights if weights.max() > 2 else x
        return y + 1 if x.shape[0] == 1 else y

    sizes = ({0: torch.export.Dim.DYNAMIC},)
    with pytest.warns(CaptureWarning, match=r"shape\[0\] != 1, from inputs, guarded"):
        program = exporters.export(model(function), (X,), dynamic_shapes=sizes, capture="auto")
    with pytest.raises(Exception, match=r"expected x.shape\[0\] != 1"):
        program(X[:1])


@pytest.mark.parametrize(
    ("function", "condition"),
    [
        (lambda x: torch.cat(x.split(2)), r"\(\(x.shape\[0\] \+ 1\)//2\) == 4"),
        (lambda x: torch.cat(x.chunk(2)), r".*== 2"),
        (lambda x: x.tensor_split(2)[0], r"Mod\(x.shape\[0\], 2\) > 0"),
        (lambda x: torch.nn.functional.adaptive_avg_pool1d(x[None], (x.shape[0] // 3,)), r"\(x.shape\[0\]//3\) == 2"),
    ],
)
def test_what_torch_makes_a_number_of_a_size_is_listed(model, function, condition):
    module, sizes = model(function), ({0: torch.export.Dim.DYNAMIC},)
    with pytest.warns(CaptureWarning, match=rf"size {condition}, from inputs"):
        exporters.export(module, (torch.ones(7),), dynamic_shapes=sizes)


def test_parts_of_a_dynamic_size(model):
    module = model(lambda x: torch.cat([part * i for i, part in enumerate(x.chunk(3))]))
    with pytest.warns(CaptureWarning, match="== 3, from inputs"):
        program = exporters.export(module, (torch.ones(7),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert exporters.verify(module, program=program, samples=[(torch.rand(size),) for size in (7, 8, 9, 12)]).ok


def test_an_order_of_products_fixes_no_size(model):
    assert torch.backends.opt_einsum.is_available()
    module = model(lambda x: torch.einsum("bi,bj,bk->ijk", x, x.cos(), x.sin()))
    program = exporters.export(module, (X,), verbose=False, dynamic_shapes=({0: torch.export.Dim.AUTO},))
    assert program.decisions == ()
    np.testing.assert_allclose(program(X[:1])[0], module(X[:1]), rtol=1e-5)
    assert torch.backends.opt_einsum.enabled


def test_a_floor_of_a_size_is_the_greatest_number_that_is_not_larger(model):
    module, sizes = model(lambda x: torch.ones(-(-x.shape[0] // 2))), ({0: torch.export.Dim.DYNAMIC},)
    program = exporters.export(module, (torch.ones(7),), dynamic_shapes=sizes)
    assert [len(program(torch.ones(count))[0]) for count in (7, 8, 11)] == [4, 4, 6]


@pytest.mark.parametrize("capture", ["export", "auto"])
def test_a_loop_over_rows_fixes_how_many_there_are(model, capture):
    sizes = ({0: torch.export.Dim.AUTO},)
    with pytest.warns(CaptureWarning, match=r"shape\[0\] == 2, from inputs, guarded"):
        program = exporters.export(
            model(lambda x: torch.stack([row * i for i, row in enumerate(x)])),
            (X,),
            dynamic_shapes=sizes,
            capture=capture,
        )
    session = pyops.InferenceSession(program)
    assert session.get_inputs()[0].shape == [2, 3]
    with pytest.raises(Exception, match="Got: 3 Expected: 2"):
        session.run(None, {session.get_inputs()[0].name: np.ones((3, 3), np.float32)})


@pytest.mark.parametrize("name", [exhaustive("if on a buffer"), "if on a sum", exhaustive("rows")])
def test_sizes_stay_dynamic_without_a_trace(name):
    case = CASES[name]
    program = export(case, capture="auto", dynamic_shapes=(({0: "batch"},),))
    report = exporters.verify(case.model, program=program, samples=[case.args, (torch.rand(5, 3),)])
    assert report.ok, report


@pytest.mark.parametrize("capture", ["auto", "trace"])
def test_cond_and_loops_over_sizes_stay_as_they_are(capture):
    def function(model, x):
        for _ in range(x.shape[1]):
            x = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
        return x

    case = Case(Affine(function), (X,), [])
    program = export(case, capture=capture)
    assert program.decisions == ()
    assert exporters.verify(case.model, program=program, samples=[(X,), (-X,)]).ok


class Cache:
    """A container like those of language models: lists of tensors, and what counts them."""

    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.seen = 0

    def update(self, key: torch.Tensor, value: torch.Tensor) -> None:
        self.keys.append(key)
        self.values.append(value)
        self.seen += 1


class Found(dict[str, Any]):
    """A dict that torch does not know."""


class WithCache(torch.nn.Module):
    def forward(self, x, cache):
        cache.update(x, x + cache.keys[0])
        cache.keys[0] = cache.keys[0] * 2
        cache.values[0] = cache.values[0] * 2
        return Found(sum=sum(cache.values), cache=cache)


@pytest.mark.parametrize("capture", ["export", "trace"])
def test_containers_that_torch_does_not_know(capture):
    def arguments():
        cache = Cache()
        cache.update(X, X + 1)
        return X, cache

    given = arguments()
    program = exporters.export(WithCache().eval(), given, verbose=False, capture=capture)
    names = [item.name for item in program.model.graph.inputs]
    assert names == ["x", "cache_keys_0", "cache_values_0"]
    assert given[1].seen == 1, "the argument has not changed"
    expected = exporters.to_onnx_outputs(WithCache()(*arguments()))
    assert len(expected) == 5
    for found, wanted in zip(program(*arguments()), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not {Cache, Found} & torch.utils._pytree.SUPPORTED_NODES.keys()


def test_what_a_capture_changes_is_restored():
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(()))
            self.seen: list[torch.Tensor] = []
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            self.seen.append(x)
            self.last = x
            self.total += 1
            return x + 1 if x.sum() > 0 else x

    model = Counting().eval()
    validates = torch.distributions.Distribution._validate_args
    for capture in ("trace", "auto"):
        export(Case(model, (X,), []), capture=capture)
    with pytest.raises(ExportError):
        export(Case(model, (X,), []))
    assert (model.calls, model.seen, hasattr(model, "last"), model.total.item()) == (0, [], False, 0)
    assert not model._forward_hooks
    assert torch.distributions.Distribution._validate_args == validates
    assert torch.is_grad_enabled()


def test_a_tensor_that_a_failed_capture_wrote_to_is_restored():
    model = Affine(lambda model, x: model.plain.add_(x.sum()))
    model.plain = torch.zeros(3)
    with pytest.raises(Exception, match="is mutated in the forward method"):
        export(Case(model, (X,), []), capture="trace")
    assert model.plain.tolist() == [0, 0, 0]


@pytest.mark.parametrize("capture", ["export", exhaustive("auto"), "trace"])
def test_a_model_that_computes_gradients(capture):
    def function(model, x):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad((x.sin() ** 2).sum(), x)
        return gradient

    (force,) = export(Case(Affine(function), (X,), []), capture=capture)(X)
    torch.testing.assert_close(force, (2 * X).sin())


@pytest.mark.parametrize("capture", ["export", exhaustive("auto"), "trace"])
def test_a_tensor_that_is_passed_twice_is_two_inputs(capture):
    model = Affine(lambda model, x, y, weight: x - 2 * y + weight.sum(0))
    program = exporters.export(model, (X, X, model.linear.weight), verbose=False, capture=capture)
    others = X + 1, X + 2, torch.eye(3)
    np.testing.assert_allclose(program(*others)[0], model(*others).detach(), rtol=1e-5)


class Held:
    def __init__(self, x: torch.Tensor) -> None:
        self.items = [x]


@pytest.mark.parametrize(
    ("function", "args", "shapes", "fixed"),
    [
        (lambda x, y: x + y, (X, X), ({0: "n"}, None), ["x.shape[0] == 2"]),
        (lambda x, y: x + y, (X, X), ({0: "n"}, {0: "n"}), []),
        (lambda x: x["a"][0].reshape(2, 3), ({"a": [X]},), {"x": {"a": [{0: "n"}]}}, ["x['a'][0]"]),
        (lambda x, held: held.items[0].reshape(2, 3), (X, Held(X)), (None, [[{0: "n"}]]), ["held[0][0]"]),
        (lambda x: x, (X,), torch.export.ShapesCollection(), []),
    ],
    ids=["static beside it", "none", "nested", "container", "collection"],
)
def test_a_named_size_that_the_model_fixes_is_listed(model, function, args, shapes, fixed):
    named = torch.utils._pytree.tree_map(lambda item: torch.export.Dim("n") if item == "n" else item, shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        program = exporters.export(model(function), args, dynamic_shapes=named, verbose=False)
    assert [(item.kind, item.guarded) for item in program.decisions] == [("size", True)] * len(fixed)
    assert [item.value[: len(text)] for item, text in zip(program.decisions, fixed, strict=True)] == fixed


def test_explain_captures_as_export_does():
    case = CASES["if on a sum"]
    assert "cannot capture" in exporters.explain(case.model, case.args).problem
    found = exporters.explain(case.model, case.args, capture="auto")
    assert {item.operator for item in found} >= {"aten::linear"}
