"""Graph networks, flows, Gaussian processes, solvers of differential equations and equivariant networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.model_coverage.inputs import Call, normal
from tests.model_coverage.model import Inputs, Made, model


def _graph(features: int = 8, edge_features: int = 0) -> Callable[[int], Inputs]:
    """Return a function that makes the features of nodes, edges between them, and features of the edges."""

    def make(size: int) -> Inputs:
        generator = torch.Generator().manual_seed(size)
        nodes, edges = 5 * size, 14 * size
        x = torch.randn(nodes, features, generator=generator)
        pairs = torch.randint(0, nodes, (2, edges), generator=generator)
        more = (torch.randn(edges, edge_features, generator=generator),) if edge_features else ()
        return (x, pairs, *more)

    return make


def _geometric(
    name: str, make: Callable[[Any], torch.nn.Module], inputs: Callable[[int], Inputs] | None = None
) -> None:
    @model(f"PyG {name}", "graphs", "torch_geometric")
    def _() -> Made:
        import torch_geometric.nn

        return make(torch_geometric.nn), inputs or _graph()


_geometric("GCN", lambda nn: nn.GCN(8, 16, 2, 4))
_geometric("GAT", lambda nn: nn.GAT(8, 16, 2, 4, heads=2))
_geometric("GATv2Conv", lambda nn: nn.GATv2Conv(8, 4, heads=2, edge_dim=3), _graph(8, 3))
_geometric("GIN", lambda nn: nn.GIN(8, 16, 2, 4))
_geometric("GraphSAGE", lambda nn: nn.GraphSAGE(8, 16, 2, 4))
_geometric(
    "PNAConv",
    lambda nn: nn.PNAConv(
        8, 8, ["mean", "min", "max", "std"], ["identity", "amplification"], torch.tensor([0, 2, 4, 3, 1])
    ),
)
_geometric("ChebConv", lambda nn: nn.ChebConv(8, 4, 3))
_geometric("TransformerConv", lambda nn: nn.TransformerConv(8, 4, heads=2, edge_dim=3), _graph(8, 3))
_geometric("NNConv", lambda nn: nn.NNConv(8, 4, torch.nn.Linear(3, 32)), _graph(8, 3))
_geometric(
    "RGCNConv", lambda nn: Call(nn.RGCNConv(8, 4, 3), lambda m, x, e, t: m(x, e, (t[:, 0] > 0).long())), _graph(8, 1)
)
_geometric("SAGPooling", lambda nn: Call(nn.SAGPooling(8, 0.5), lambda m, x, e: m(x, e)[0]))
_geometric(
    "global attention",
    lambda nn: Call(
        nn.AttentionalAggregation(torch.nn.Linear(8, 1)),
        lambda m, x, e: m(x, torch.zeros(x.shape[0], dtype=torch.int64), dim_size=1),
    ),
)
_geometric(
    "Set2Set",
    lambda nn: Call(nn.Set2Set(8, 2), lambda m, x, e: m(x, torch.zeros(x.shape[0], dtype=torch.int64), dim_size=1)),
)


def _atoms(size: int) -> Inputs:
    generator = torch.Generator().manual_seed(size)
    count = 4 * size
    return (torch.randint(1, 9, (count,), generator=generator), torch.randn(count, 3, generator=generator) * 2)


_geometric(
    "SchNet", lambda nn: Call(nn.SchNet(16, 16, 1, 8, interaction_graph=_complete), lambda m, z, x: m(z, x)), _atoms
)


def _complete(positions: torch.Tensor, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the edges between all pairs of atoms, and their lengths."""
    count = positions.shape[0]
    ends = torch.arange(count)
    source, target = ends.repeat_interleave(count), ends.repeat(count)
    return torch.stack([source, target]), (positions[source] - positions[target] + 1e-3).norm(dim=-1)


def _enter(name: str, family: str, package: str, make: Callable[[], torch.nn.Module], *shapes: tuple[int, ...]) -> None:
    model(name, family, package)(lambda: (make(), normal(*shapes)))


def _zuko(name: str, **arguments: Any) -> None:
    def make() -> torch.nn.Module:
        import zuko

        flow = getattr(zuko.flows, name)(3, 2, transforms=2, hidden_features=[16, 16], **arguments)
        return Call(flow, lambda m, x, c: m(c).log_prob(x))

    _enter(f"zuko {name}, density", "flows and densities", "zuko", make, (3,), (2,))


_zuko("MAF")
_zuko("NSF")
_zuko("NICE")
_zuko("NAF", signal=4)
_zuko("SOSPF")


def _zuko_samples() -> torch.nn.Module:
    import zuko

    return Call(zuko.flows.NSF(3, 2, transforms=1, hidden_features=[16]), lambda m, z, c: m(c).transform.inv(z))


_enter("zuko NSF, inverse", "flows and densities", "zuko", _zuko_samples, (3,), (2,))


def _cnf() -> torch.nn.Module:
    import zuko

    return Call(zuko.flows.CNF(3, 2, hidden_features=[8]), lambda m, z, c: m(c).transform.inv(z))


_enter("zuko CNF, inverse", "flows and densities", "zuko", _cnf, (3,), (2,))


def _nflows() -> torch.nn.Module:
    from nflows import distributions, flows, transforms

    steps = [
        transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
            3, 8, num_bins=4, tails="linear", tail_bound=3.0
        ),
        transforms.LULinear(3),
        transforms.RandomPermutation(3),
    ]
    return Call(
        flows.Flow(transforms.CompositeTransform(steps), distributions.StandardNormal([3])), lambda m, x: m.log_prob(x)
    )


_enter("nflows spline flow", "flows and densities", "nflows", _nflows, (3,))


def _normflows() -> torch.nn.Module:
    import normflows

    steps = [
        step
        for _ in range(2)
        for step in (normflows.flows.AutoregressiveRationalQuadraticSpline(4, 1, 8), normflows.flows.LULinearPermute(4))
    ]
    return Call(normflows.NormalizingFlow(normflows.distributions.DiagGaussian(4), steps), lambda m, x: m.log_prob(x))


_enter("normflows spline flow", "flows and densities", "normflows", _normflows, (4,))


def _frEIA() -> torch.nn.Module:
    import FrEIA

    flow = FrEIA.framework.SequenceINN(4)
    for _ in range(2):
        flow.append(
            FrEIA.modules.AllInOneBlock,
            subnet_constructor=lambda given, wanted: torch.nn.Sequential(
                torch.nn.Linear(given, 8), torch.nn.ReLU(), torch.nn.Linear(8, wanted)
            ),
        )
    return flow


_enter("FrEIA AllInOneBlock", "flows and densities", "FrEIA", _frEIA, (4,))


def _gpytorch(kernel: Callable[[Any], Any]) -> torch.nn.Module:
    import gpytorch

    class Regression(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            x = torch.linspace(0, 1, 12)[:, None]
            super().__init__(x, (6 * x[:, 0]).sin(), gpytorch.likelihoods.GaussianLikelihood())
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel(gpytorch.kernels)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def posterior(m: Any, x: torch.Tensor) -> Any:
        found = m(x)
        return found.mean, found.variance

    return Call(Regression(), posterior)


for _name, _kernel in {
    "RBF": lambda k: k.ScaleKernel(k.RBFKernel()),
    "Matern": lambda k: k.ScaleKernel(k.MaternKernel(2.5)),
    "periodic": lambda k: k.PeriodicKernel(),
    "spectral mixture": lambda k: k.SpectralMixtureKernel(2),
}.items():
    _enter(
        f"gpytorch {_name}, posterior", "Gaussian processes", "gpytorch", lambda kernel=_kernel: _gpytorch(kernel), (1,)
    )


def _variational() -> torch.nn.Module:
    import gpytorch

    class Approximate(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            points = torch.linspace(0, 1, 6)[:, None]
            inducing = gpytorch.variational.CholeskyVariationalDistribution(6)
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, inducing))
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), gpytorch.kernels.RBFKernel()

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Call(Approximate(), lambda m, x: (m(x).mean, m(x).variance))


_enter("gpytorch variational posterior", "Gaussian processes", "gpytorch", _variational, (1,))


class _Field(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.layers(y)


def _ode(method: str) -> torch.nn.Module:
    import torchdiffeq

    return Call(_Field(), lambda m, y: torchdiffeq.odeint(m, y, torch.linspace(0.0, 1.0, 5), method=method))


for _method in ("euler", "rk4", "dopri5", "implicit_adams"):
    _enter(f"torchdiffeq {_method}", "differential equations", "torchdiffeq", lambda method=_method: _ode(method), (2,))


def _controlled() -> torch.nn.Module:
    import torchcde

    def spline(m: torch.nn.Module, x: torch.Tensor) -> Any:
        path = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(x))
        return torchcde.cdeint(
            path,
            lambda t, z: m(z).reshape(*z.shape, 2),
            m(x[:, 0])[..., :2],
            torch.tensor([0.0, 1.0]),
            adjoint=False,
            method="rk4",
        )

    return Call(torch.nn.Linear(2, 4), spline)


_enter("torchcde spline", "differential equations", "torchcde", _controlled, (6, 2))


def _e3nn(name: str, make: Callable[[Any], Any], *shapes: tuple[int, ...]) -> None:
    def made() -> torch.nn.Module:
        from e3nn import nn, o3

        found = make(o3) if name != "Gate" else nn.Gate("8x0e", [torch.relu], "4x0e", [torch.sigmoid], "4x1o")
        return found if isinstance(found, torch.nn.Module) else Call(torch.nn.Identity(), lambda _, *args: found(*args))

    _enter(f"e3nn {name}", "equivariant networks", "e3nn", made, *shapes)


_e3nn("spherical harmonics", lambda o3: o3.SphericalHarmonics([0, 1, 2, 3], True), (3,))
_e3nn("Linear", lambda o3: o3.Linear("4x0e+2x1o", "3x0e+2x1o"), (10,))
_e3nn("tensor product", lambda o3: o3.FullyConnectedTensorProduct("4x0e+2x1o", "0e+1o", "3x0e+2x1o"), (10,), (4,))
_e3nn("Gate", lambda o3: None, (24,))
_e3nn("Wigner D", lambda o3: lambda a: o3.wigner_D(2, a[:, 0], a[:, 1], a[:, 2]), (3,))


@model("egnn EGNN", "equivariant networks", "egnn-pytorch")
def _egnn() -> Made:
    from egnn_pytorch import EGNN

    return EGNN(dim=8), normal((6, 8), (6, 3))


def _operator(name: str, shape: tuple[int, ...], **arguments: Any) -> None:
    def make() -> torch.nn.Module:
        import neuralop.models

        return getattr(neuralop.models, name)(**arguments)

    _enter(f"neuraloperator {name}", "differential equations", "neuraloperator", make, shape)


_operator("FNO", (1, 16, 16), n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
_operator("TFNO", (1, 16, 16), n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
