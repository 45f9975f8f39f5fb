"""Packed sequences, whose lengths are an input of the exported model."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import exporters
import pyops
from exporters.errors import CaptureWarning, ExportError
from tests.helpers.tiers import exhaustive

# Torch's, of every recurrent layer that torch.export captures.
pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes self.layer._flat_weights")

LENGTHS = [3, 5, 2], [1, 7, 1, 4], [4, 4], [1]


class Packing(nn.Module):
    """Runs a recurrent layer over sequences, and returns the padded results, their lengths and the last states."""

    def __init__(self, layer, pads=False, **packing):
        super().__init__()
        self.layer, self.pads, self.packing = layer, pads, packing

    def forward(self, x, lengths, *states):
        first, time = self.layer.batch_first, 1 if self.layer.batch_first else 0
        packed = pack_padded_sequence(x, lengths, batch_first=first, **self.packing)
        results, last = self.layer(packed, *states)
        padding = {"padding_value": -1.0, "total_length": x.shape[time]} if self.pads else {}
        return *pad_packed_sequence(results, batch_first=first, **padding), last


def unsorted(layer, **arguments):
    return Packing(layer, enforce_sorted=False, **arguments).eval()


def arguments(model, lengths, longer=0):
    """Return sequences that are padded to more than the longest."""
    x = torch.randn(len(lengths), max(lengths) + longer, model.layer.input_size)
    lengths = lengths if model.packing else sorted(lengths, reverse=True)
    return x if model.layer.batch_first else x.transpose(0, 1).contiguous(), torch.tensor(lengths)


def export(model, args, **settings):
    batch, time = (0, 1) if model.layer.batch_first else (1, 0)
    shapes = {"x": {batch: "batch", time: "time"}, "lengths": {0: "batch"}, "states": ({1: "batch"},)}
    names = list(shapes)[: len(args)]
    shapes = {name: shapes[name] for name in names}
    return exporters.export(model, args, dynamic_shapes=shapes, verbose=False, **settings)


def compare(session, model, args):
    with torch.no_grad():
        padded, lengths, last = model(*args)
    expected = [padded, lengths, *(last if isinstance(last, tuple) else [last])]
    names = [item.name for item in session.get_inputs()]
    results = session.run(None, dict(zip(names, (item.numpy() for item in args), strict=True)))
    for result, tensor in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        unsorted(nn.LSTM(3, 4, 2, bidirectional=True), pads=True),
        unsorted(nn.GRU(3, 4, 2, batch_first=True, bidirectional=True), pads=True),
        unsorted(nn.RNN(3, 4, 2, nonlinearity="relu", bidirectional=True)),
        Packing(nn.LSTM(3, 4, bias=False), pads=True).eval(),
        exhaustive(unsorted(nn.LSTM(3, 4, batch_first=True))),
        exhaustive(unsorted(nn.RNN(3, 4))),
        exhaustive(Packing(nn.GRU(3, 4)).eval()),
        exhaustive(Packing(nn.GRU(3, 4, 2, bias=False, batch_first=True)).eval()),
        exhaustive(Packing(nn.RNN(3, 4, batch_first=True), pads=True).eval()),
    ],
    ids=lambda model: "sorted " * (not model.packing) + str(model.layer),
)
def test_other_lengths_of_other_sequences(model):
    session = pyops.InferenceSession(export(model, arguments(model, LENGTHS[0])))
    for lengths in LENGTHS:
        compare(session, model, arguments(model, lengths))
        compare(session, model, arguments(model, lengths, longer=2))


@pytest.mark.parametrize("kind", [nn.GRU, exhaustive(nn.RNN)])
def test_initial_states(kind):
    model = unsorted(kind(3, 4, 2))
    args = [(*arguments(model, lengths), torch.randn(2, len(lengths), 4)) for lengths in LENGTHS]
    session = pyops.InferenceSession(export(model, args[0], capture="auto"))
    for item in args:
        compare(session, model, item)


def test_calls_on_the_rows_of_a_packed_sequence():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.linear = nn.GRU(3, 4), nn.Linear(4, 5)

        def forward(self, x, lengths, wanted):
            results, _ = self.layer(pack_padded_sequence(x, lengths))
            rows = self.linear(results.data)
            return nn.functional.cross_entropy(rows, pack_padded_sequence(wanted, lengths).data), rows.shape[0]

    model, shapes = Loss().eval(), ({0: "time", 1: "batch"}, {0: "batch"}, {0: "time", 1: "batch"})
    examples = [
        (torch.randn(5, len(item), 3), torch.tensor(item), torch.randint(5, (5, len(item)))) for item in ([5, 2], [4])
    ]
    program = exporters.export(model, examples[0], dynamic_shapes=shapes, verbose=False)
    for args in examples:
        loss, count = program(*args)
        np.testing.assert_allclose(loss, model(*args)[0].detach(), rtol=1e-5)
        assert count == sum(args[1])


def test_a_trace_lists_the_longest_length():
    model = unsorted(nn.GRU(3, 4), pads=True)
    with pytest.warns(CaptureWarning, match=r"size float32\[10, 3\] and int64\[5\], from inputs"):
        program = exporters.export(model, arguments(model, LENGTHS[0]), verbose=False, capture="trace")
    x, _ = arguments(model, LENGTHS[0])
    compare(pyops.InferenceSession(program), model, (x, torch.tensor([1, 4, 4])))


def test_lengths_in_another_order_than_the_model_asks_for_are_refused():
    model = Packing(nn.GRU(3, 4)).eval()
    program = export(model, arguments(model, [5, 2]))
    with pytest.raises(Exception, match="ScatterND"):
        program(torch.randn(5, 2, 3), torch.tensor([2, 5]))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.filterwarnings("ignore:Exporting a model while it is in training mode")
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (unsorted(nn.LSTM(3, 4, proj_size=2)), r"ONNX's LSTM has no projection \(proj_size\); .*fallback=True"),
        (unsorted(nn.GRU(3, 4, 2, dropout=0.5)).train(), r"dropout of GRU in training mode .*call model.eval\(\)"),
    ],
)
def test_what_onnx_lacks_is_named_with_the_line(model, message):
    with pytest.raises(ExportError, match=rf"{message}.*test_packed_sequences.py:\d+: results, last = "):
        exporters.export(model, arguments(model, LENGTHS[0]), verbose=False)
