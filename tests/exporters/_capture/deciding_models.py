"""Models of the kinds that people write; each decides something by its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from tests.exporters._capture.capture_models import Affine


class Deciding(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]
    others: tuple[Any, ...]
    """Arguments of the same shapes for which the model decides otherwise."""

    def model(self) -> torch.nn.Module:
        """Return the model, with the same weights each time."""
        torch.manual_seed(0)
        return Affine(self.function)


DECIDING: dict[str, Deciding] = {}


def _decides(
    args: tuple[Any, ...], others: tuple[Any, ...]
) -> Callable[[Callable[..., torch.Tensor]], Callable[..., torch.Tensor]]:
    """Enter a model's function in the table, with arguments that decide two ways."""

    def enter(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        DECIDING[function.__name__.strip("_").replace("_", " ")] = Deciding(function, args, others)
        return function

    return enter


X = torch.tensor([[0.5, -0.25, 1.0], [0.75, 0.125, -0.5]])
SYMMETRIC = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.5, 0.25], [0.0, 0.25, 1.0]])
IDS = torch.tensor([5, 3, 1, 0])
POINTS = torch.tensor([[0.0], [1], [4], [5]])


@_decides((X,), (20 * X,))
def _early_exit(model, x):
    scores = x.softmax(-1)
    if scores.amax() > 0.9:
        return scores
    return model.linear(x).softmax(-1)


@_decides((X,), (X / 4,))
def _clip_by_norm(model, x):
    norm = x.norm()
    if norm > 1:
        x = x / norm
    return model.linear(x)


@_decides((X.abs() + 1,), (X.abs() + 30,))
def _newton_until_converged(model, x):
    root = x / 2
    while (root * root - x).abs().max() > 1e-3:
        root = (root + x / root) / 2
    return root


@_decides((X,), (torch.where(X > 0.9, torch.nan, X),))
def _nan_check(model, x):
    if torch.isnan(x).any():
        x = torch.nan_to_num(x)
    return model.linear(x)


@_decides((X, torch.tensor([True, True, False])), (X, torch.tensor([True, False, False])))
def _length_of_a_mask(model, x, mask):
    length = mask.sum().item()
    kept = [x[:, index] for index in range(length)]
    return torch.stack(kept).mean(0)


@_decides((X,), (-X,))
def _expert_by_argmax(model, x):
    experts = (torch.relu, torch.tanh, torch.sigmoid)
    return experts[int(x.mean(0).argmax())](x)


@_decides((X, torch.tensor([2, 3])), (X, torch.tensor([1, 2])))
def _padding_to_the_longest(model, x, lengths):
    longest = max(lengths.tolist())
    return functional.pad(x, (0, 4 - longest))


@_decides((X, torch.tensor([True, False])), (X, torch.tensor([False, False])))
def _nothing_to_do(model, x, wanted):
    if not wanted.any():
        return x
    return torch.where(wanted[:, None], model.linear(x), x)


@_decides((SYMMETRIC,), (-SYMMETRIC,))
def _proper_rotation(model, x):
    left, _, right = torch.linalg.svd(x)
    rotation = left @ right
    if torch.linalg.det(rotation) < 0:
        rotation = -rotation
    return rotation


@_decides((X, torch.tensor(2)), (X, torch.tensor(1)))
def _count_as_a_tensor(model, x, count):
    return x.topk(int(count)).values.sum(-1)


@_decides((X, torch.tensor([1, 1])), (X, torch.tensor([2, 0])))
def _packed_sequences(model, x, lengths):
    start, sums = 0, []
    for length in lengths.tolist():
        sums.append(x[start : start + length].sum(0))
        start += length
    return torch.stack(sums)


@_decides((SYMMETRIC,), (SYMMETRIC + 4 * torch.eye(3),))
def _power_iteration(model, x):
    vector = torch.ones(3)
    for _ in range(50):
        following = x @ vector
        following = following / following.norm()
        if (following - vector).norm() < 1e-2:
            break
        vector = following
    return vector


@_decides((X,), (X + 2,))
def _bisection(model, x):
    low, high = -4.0, 4.0
    for _ in range(6):
        middle = (low + high) / 2
        if (x - middle).sum() > 0:
            low = middle
        else:
            high = middle
    return x - low


@_decides((X,), (30 * X,))
def _adaptive_steps(model, x):
    time, step = 0.0, 0.5
    while time < 1:
        once = x - step * x
        twice = x - step / 2 * x
        twice = twice - step / 2 * twice
        if (once - twice).abs().max() > 0.5:
            step = step / 2
            continue
        time, x = time + step, twice
    return x


@_decides((X,), (X / 8,))
def _backtracking(model, x):
    def cost(point):
        return (point**4).sum()

    step, slope = 1.0, 4 * x**3
    while cost(x - step * slope) > cost(x):
        step /= 2
    return x - step * slope


@_decides((SYMMETRIC, X[0]), (torch.eye(3), X[0]))
def _conjugate_gradients(model, matrix, right):
    solution, residual = torch.zeros_like(right), right
    direction, square = residual, residual @ residual
    for _ in range(3):
        product = matrix @ direction
        step = square / (direction @ product)
        solution, residual = solution + step * direction, residual - step * product
        if residual.norm() < 1e-4:
            return solution
        square, before = residual @ residual, square
        direction = residual + square / before * direction
    return solution


@_decides((SYMMETRIC,), (SYMMETRIC.flip(0),))
def _greedy_decoding(model, scores):
    token, found = scores[0].argmax(), []
    while token != 2 and len(found) < 4:
        found.append(token)
        token = scores[token].roll(1).argmax()
    return torch.stack([*found, token])


@_decides((X,), (40 * X,))
def _fixed_point(model, x):
    state = x
    for _ in range(20):
        following = torch.tanh(0.3 * state + x)
        if (following - state).abs().max() < 1e-2:
            return following
        state = following
    return state


@_decides((X,), (X + 3,))
def _exposure(model, x):
    brightness = x.mean().item()
    if brightness > 1:
        return x / brightness
    return x


@_decides((X,), (X.flip(-1),))
def _median_in_numpy(model, x):
    middle = sorted(x[:, 0].numpy().tolist())[1]
    return x - middle


@_decides((IDS, IDS), (IDS, IDS.flip(0)))
def _same_as_another(model, x, y):
    if torch.equal(x, y):
        return 2 * x
    return x + y


@_decides((SYMMETRIC,), (SYMMETRIC + torch.eye(3).roll(1, 0),))
def _symmetric_or_not(model, x):
    if torch.allclose(x, x.mT):
        return torch.linalg.eigvalsh(x)
    return torch.linalg.svdvals(x)


@_decides((X,), (9 * X,))
def _range_of_a_quantizer(model, x):
    scale = x.abs().max().item() / 127
    return torch.round(x / scale).clamp(-128, 127)


@_decides((IDS,), (IDS + 2,))
def _bins_up_to_the_largest(model, labels):
    counts = torch.zeros(int(labels.max()) + 1)
    return counts.index_add(0, labels, torch.ones(4))


@_decides((IDS,), (IDS + torch.tensor([1, 0, 0, 0]),))
def _odd_or_even(model, x):
    if x.sum().item() % 2:
        return x + 1
    return x


@_decides((X,), (X.sort(0).values,))
def _sort_if_needed(model, x):
    if (x[1:] >= x[:-1]).all():
        return x
    return x.sort(0).values


@_decides((X,), (X - 0.5,))
def _threshold_at_a_quantile(model, x):
    threshold = float(torch.quantile(x, 0.75))
    if threshold > 0.3:
        return x.clamp(max=threshold)
    return x


@_decides((POINTS, torch.tensor([[0.0], [5]])), (POINTS, torch.tensor([[0.0], [0.5]])))
def _clusters(model, points, centers):
    chosen = torch.full((4,), -1)
    while True:
        nearest = (points[:, None] - centers).norm(dim=-1).argmin(1)
        if bool((nearest == chosen).all()):
            return centers
        chosen = nearest
        weights = functional.one_hot(nearest, 2).to(points.dtype)
        centers = (weights.mT @ points) / weights.sum(0).clamp(min=1)[:, None]


@_decides((X.exp(),), ((4 * X).exp(),))
def _balanced_margins(model, plan):
    for _ in range(30):
        plan = plan / plan.sum(1, keepdim=True)
        if (plan.sum(0) - 2 / 3).abs().max() < 0.05:
            break
        plan = plan / plan.sum(0) * 2 / 3
    return plan


@_decides((IDS,), (IDS - 4,))
def _kind_of_the_first_token(model, ids):
    if ids[0] == 1:
        return ids.cumsum(0)
    return ids.flip(0)


@_decides((X, torch.tensor(0.0)), (X, torch.tensor(0.5)))
def _temperature(model, scores, temperature):
    if temperature.item() == 0:
        return functional.one_hot(scores.argmax(-1), 3).float()
    return (scores / temperature).softmax(-1)


@_decides((SYMMETRIC, torch.tensor([0.2, 2.1])), (SYMMETRIC, torch.tensor([1.0, 2.1])))
def _crop(model, image, box):
    first, last = box.int().tolist()
    return image[first:last].mean(0)


@_decides((X, torch.tensor(1)), (X, torch.tensor(0)))
def _mode_by_number(model, x, mode):
    return {0: torch.relu, 1: torch.tanh}[mode.item()](x)


@_decides((IDS,), (IDS.flip(0),))
def _position_of_the_end(model, ids):
    for position in range(4):
        if ids[position] == 1:
            return ids[: position + 1].sum()
    return ids.sum()


@_decides((X,), (X * torch.tensor([0.0, 1, 1]),))
def _division_by_zero(model, x):
    if torch.any(x == 0):
        raise ValueError("division by zero")
    return 1 / x


@_decides((SYMMETRIC,), (SYMMETRIC - torch.eye(3),))
def _positive_spectrum(model, x):
    smallest = torch.linalg.eigvalsh(x)[0]
    if smallest <= 0:
        x = x + (1e-3 - smallest) * torch.eye(3)
    return torch.linalg.slogdet(x).logabsdet


@_decides((SYMMETRIC,), (SYMMETRIC - torch.eye(3),))
def _jitter_until_it_factors(model, x):
    jitter = 0.125
    while torch.linalg.cholesky_ex(x).info.any():
        x = x + jitter * torch.eye(3)
        jitter *= 2
    return x.diagonal().sum()


@_decides((X, X / 2), (X, 2 * X))
def _stronger_of_two(model, x, y):
    return model.linear(x) if x.norm() > y.norm() else model.linear(y)


@_decides((X,), (100 * X,))
def _overflow(model, x):
    sums = x.exp().sum(-1)
    if torch.isinf(sums).any():
        return x.logsumexp(-1)
    return sums.log()
