"""Separate calls of operators that torch decomposes before a sample of its database reaches them."""

import itertools

import numpy as np
import pytest
import torch

from exporters._torch.private.operators import find_overload
from tests.exporters._library.kernel_calls import Call, arrays, run

DTYPES = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-9, 1e-10)}


def tensor(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def classes(count, *shape):
    return torch.from_numpy(np.random.default_rng(1).integers(0, count, shape))


def _cross_entropies():
    probabilities = torch.softmax(tensor(4, 5, seed=3), 1)
    for weight, reduction, smoothing in itertools.product((None, tensor(5).abs()), range(3), (0.0, 0.3)):
        yield tensor(4, 5), probabilities, weight, reduction, -100, smoothing
        yield tensor(5), probabilities[0], weight, reduction, -100, smoothing
        yield tensor(5), torch.tensor(2), weight, reduction, -100, smoothing
        if smoothing:
            yield tensor(4, 5), torch.tensor([0, 4, 1, 4]), weight, reduction, 4, smoothing
            yield tensor(3, 5, 2, 6), classes(5, 3, 2, 6), weight, reduction, -100, smoothing
    yield tensor(3, 5, 2), torch.softmax(tensor(3, 5, 2, seed=3), 1), tensor(5).abs(), 1, -100, 0.1
    yield tensor(5), torch.tensor(2), None, 0, 2, 0.0


def _ctc_losses(lengths):
    log_probs, targets = tensor(9, 3, 5).log_softmax(-1), 1 + classes(4, 3, 4)
    sizes = [9, 7, 4], [4, 3, 0]
    for reduction, zero_infinity in itertools.product(range(3), (False, True)):
        yield log_probs, targets, *map(lengths, sizes), 0, reduction, zero_infinity
        yield log_probs, targets, *map(lengths, ([2, 7, 0], [4, 3, 0])), 0, reduction, zero_infinity
    yield log_probs, targets.flatten()[:7].int(), *map(lengths, sizes), 0, 1
    yield log_probs, targets - 1, *map(lengths, sizes), 4, 0
    yield log_probs[:, 0], targets[0], *map(lengths, ([9], [4])), 0, 0


def _attentions():
    # Of batch, queries or keys, and width.
    for batch in ((), (2,), (2, 1, 3)):
        query, key, value = tensor(*batch, 4, 6), tensor(*batch, 5, 6, seed=1), tensor(*batch, 5, 2, seed=2)
        mask = tensor(4, 5, seed=3) > 0
        mask[1] = False
        yield query, key, value
        yield query, key, value, mask
        yield query, key, value, tensor(4, 5, seed=3)
        yield query, key, value, None, 0.0, True
        yield query, query, query, None, 0.0, True
    query, key, value = tensor(2, 3, 4, 6), tensor(2, 3, 5, 6, seed=1), tensor(2, 3, 5, 2, seed=2)
    yield query, key, value, mask
    yield query, key, value, torch.zeros(4, 5, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    query[0, 0, 0] = torch.nan
    yield query, key, value, mask[None, None]


def _paddings():
    for padding in ([-4, 5, 0, 0], [0, 0, 2, -4], [-1, 2, 3, -1], [1, -3, -2, 2]):
        yield tensor(2, 3, 4, 4), padding
        yield tensor(3, 4, 4), padding


CALLS = {
    "aten::cross_entropy_loss": _cross_entropies(),
    "aten::ctc_loss.Tensor": _ctc_losses(torch.tensor),
    "aten::ctc_loss.IntList": itertools.islice(_ctc_losses(list), 1),
    "aten::scaled_dot_product_attention": _attentions(),
    "aten::pad": iter([(tensor(3, 4, 4), [-1, 2, 3, -1], "replicate")]),
    "aten::replication_pad2d": _paddings(),
    "aten::replication_pad1d": iter([(tensor(2, 3, 4), [-4, 5]), (tensor(3, 4), [2, -1])]),
    "aten::replication_pad3d": iter([(tensor(2, 3, 4, 5, 2), [-1, 5, -3, 4, 1, 1])]),
    "aten::cdist": ((tensor(3, 4, 2), tensor(5, 2), p) for p in (0.0, 0.3, 1.0, 2.0, float("inf"))),
    "aten::_euclidean_dist": iter([(tensor(3, 4, 2), tensor(3, 5, 2, seed=1))]),
    "prims::view_of": iter([(tensor(2, 3),), (tensor(),)]),
    "aten::pdist": ((tensor(4, 3), p) for p in (0.0, 0.3, 2.0, float("inf"))),
}


@pytest.fixture(autouse=True)
def _exporting(monkeypatch):
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)


# NumPy's, in onnx's Softmax, of the rows of attention that are masked as a whole.
@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract:RuntimeWarning")
@pytest.mark.parametrize(("operator", "args"), [(name, args) for name, several in CALLS.items() for args in several])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_computes_what_torch_does(operator, args, dtype):
    target = find_overload(operator)
    floating = [
        item.to(dtype) if isinstance(item, torch.Tensor) and item.is_floating_point() else item for item in args
    ]
    expected = target(*floating)
    actual = run(Call(target, tuple(floating), {}, expected))
    assert actual is not None
    rtol, atol = DTYPES[dtype]
    for one, other in zip(actual, arrays(expected), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        ("aten::cross_entropy_loss", (tensor(4, 5).float(), torch.tensor([0, 1, 2, 3]))),
        ("aten::scaled_dot_product_attention", (tensor(1, 2, 4, 6),) * 3),
        ("aten::scaled_dot_product_attention", (*(tensor(2, 4, 6),) * 3, None, 0.5)),
        ("aten::pad", (tensor(1, 4), [1, 1], "replicate")),
        ("aten::pad", (tensor(1, 4), [-1, 1])),
        ("aten::avg_pool2d", (tensor(1, 4, 4), [2, 2])),
        ("aten::all.dim", (tensor(3), 0)),
        ("aten::linalg_vector_norm", (tensor(3), 2, [0])),
        ("aten::linalg_vector_norm", (tensor(), 2)),
        ("aten::scatter_reduce.two", (tensor(3), 0, classes(3, 3), tensor(3), "amax")),
        ("aten::index_put", (tensor(3, 4), [None, classes(4, 2)], tensor(2))),
        ("aten::copy", (tensor(3), tensor(3).float())),
        ("aten::_to_copy", (tensor(3),)),
        ("aten::convolution", (tensor(1, 2, 4), tensor(2, 2, 3), None, [2], [0], [4], False, [2], 1)),
        ("aten::convolution", (tensor(1, 2, 4), tensor(2, 2, 3), None, [2], [0], [4], True, [1], 1)),
        (
            "aten::_native_batch_norm_legit_no_training",
            (tensor(2, 3).half(), None, None, *(tensor(3),) * 2, 1, 1),
        ),
        ("aten::bincount", (classes(3, 4),)),
        ("aten::rand", ([2, 3],)),
        ("aten::diagonal_scatter", (tensor(3, 3).cfloat(), tensor(3))),
        ("aten::native_dropout", (tensor(3), 0.5, True)),
        ("aten::native_dropout", (tensor(3), 1.0, False)),
    ],
    ids=str,
)
def test_torchs_own_nodes_stay_where_they_are_right(operator, args):
    assert run(Call(find_overload(operator), args, {}, None)) is None
