"""Small models; each shows one reason why ``torch.export`` fails, or what a capture does about it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn


class Affine(nn.Module):
    """A linear layer, a function of it and its input, and buffers."""

    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)
        self.eval()

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def if_on_a_buffer(model, x):
    if model.flag:
        return model.linear(x) + 1
    return model.linear(x)


def loop_over_a_buffer(model, x):
    for step in range(int(model.steps.max())):
        x = x + step
    return x


def if_on_a_sum(model, x):
    if x.sum() > 0:
        return model.linear(x)
    return -x


def loop_over_an_item(model, x, count):
    for step in range(count.item()):
        x = x + step
    return x


def while_on_a_sum(model, x):
    doubled = 0
    while x.sum() < 20:
        x = 2 * x
        doubled += 1
    return x * doubled


def list_of_sizes(model, x, sizes):
    return list(x.split(sizes.tolist()))


def chosen_rows(model, x):
    rows = x[x[:, 0] > 0.5]
    return rows / len(rows)


def values_in_numpy(model, x):
    return x + torch.from_numpy(x.numpy() * 2)


def values_by_dlpack(model, x):
    return x + torch.from_numpy(np.from_dlpack(x) * 2)


def checked_distribution(model, x):
    return torch.distributions.Normal(x, 1 + x.abs(), validate_args=True).log_prob(x)


def distribution(model, x):
    return torch.distributions.Normal(x, 1 + x.abs()).log_prob(x)


def if_on_what_was_written(model, x):
    written = torch.zeros(2)
    written[0] = x.sum()
    if written[0] > 0:
        return x + 1
    return x


def if_on_chance(model, x):
    if torch.rand(()) < 2:
        return x + 1
    return x


def draws_one(model, x):
    torch.manual_seed(0)
    return x @ torch.randn(3, 4)


def draws_dropout(model, x):
    dropped = nn.functional.dropout(x, 0.3, model.training)
    return nn.functional.dropout(dropped, 0.5, False)


def draws_many(model, x):
    x = x + torch.empty(3).normal_()
    x = x + torch.rand_like(x)
    return torch.bernoulli(x.sigmoid())


def if_on_a_number(model, x):
    if torch.tensor(3) > 2:
        return x + 1
    return x


def one_element(model, x):
    middle = x[1:, 1]
    if middle > 0 and middle.item() < 1:
        return x * 2
    return x


def counts_without_a_tag(model, x, counts):
    rows = len(torch.where(x > 0.5)[0]) + len(x.nonzero(as_tuple=True)[0]) + len(x.repeat_interleave(counts, 0))
    return x * (rows + nn.functional.one_hot(counts).shape[1] + len(torch.tensor_split(x, counts)[0]))


def told_counts(model, x, counts):
    return nn.functional.one_hot(counts, 5)


def rows_by_where(model, x):
    return x[torch.where(x > 0.5)]
