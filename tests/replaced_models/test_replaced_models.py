"""The command that counts layers and finds them, on a model of torch alone."""

import pytest
import torch
from torch import nn

from tests.helpers.tiers import exhaustive
from tests.replaced_models.attempt import Exporter, attempt
from tests.replaced_models.expected import expected
from tests.replaced_models.table import as_markdown


class RMSNorm(nn.Module):
    def __init__(self, size, power=2):
        super().__init__()
        self.weight, self.power = nn.Parameter(torch.linspace(0.5, 1.5, size)), power

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(self.power).mean(-1, keepdim=True) + 1e-5))


class LlamaMLP(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate, self.up = nn.Linear(size, 24, bias=False), nn.Linear(size, 24, bias=False)
        self.down = nn.Linear(24, size, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.qkv = nn.Linear(size, 3 * size, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return (torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1) @ v).transpose(1, 2).flatten(2)


class Model(nn.Module):
    def __init__(self, size=16, power=2):
        super().__init__()
        self.first, self.second, self.last = RMSNorm(size, power), RMSNorm(size), nn.LayerNorm(size)
        self.attention, self.mlp, self.unused = Attention(size), LlamaMLP(size), RMSNorm(size)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return self.last(x + self.mlp(self.second(x)))


def inputs(batch):
    return (torch.randn(batch, 5, 16, generator=torch.Generator().manual_seed(batch)),)


@pytest.mark.parametrize(("power", "norms"), [(2, 2), exhaustive(4, 1)])
def test_layers_are_counted_and_found(power, norms):
    torch.manual_seed(0)
    model = Model(power=power).eval()
    layers = expected(model, inputs(2), {})
    assert layers == {"RMSNorm": 2, "attention": 1, "SwiGLU": 1, "LayerNorm": 1}
    del layers["attention"]  # its patterns take long to make
    result = attempt(model, [inputs(2), inputs(3)], layers, Exporter.OURS, 18, verify=True, kinds=[*layers])
    assert result.found == {**layers, "RMSNorm": norms}
    assert not result.fixed
    page = as_markdown({("own", Exporter.OURS, 18): result}, {"other": "no | package"})
    assert f"| exporters.export | 18 | {norms} of 2 | 1 of 1 |  | 1 of 1 |  |  |  |" in page
    assert "no \\| package" in page
    assert ("RMSNorm" in result.reasons) is (norms == 1)
