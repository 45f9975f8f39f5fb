"""Checks of an op as a PyTorch operator."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .._schema.attribute import AttributeKind
from .._schema.dtypes import dtype_name
from ._case import NO_ONNXRUNTIME, Case, NotRun, is_installed, quiet

_NO_TORCH = 'torch or onnxscript is not installed: pip install "onnx-pyops[torch]"'


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep torch's log out of the test's, of which pytest shows all where the test fails."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)


def torch_eager(case: Case) -> str:
    """Check that the torch operator returns what the plain call returns."""
    call = _TorchCall(case)
    with quiet():
        case.compare(call.arrays(call(*call.tensors)), case.outputs, "in torch")
    return f"as {call.operator._qualname}"


def torch_fake(case: Case) -> str:
    """Check that torch's fake implementation, the shape function, gives the shapes and dtypes of the real tensors."""
    return _opcheck(case, "test_faketensor")


def torch_opcheck(case: Case) -> str:
    """Check that torch.library.opcheck passes: the schema, autograd, and tracing with symbolic shapes."""
    dtypes = [tensor.dtype for tensor in _TorchCall(case).tensors]
    small = [str(dtype) for dtype in dtypes if dtype.itemsize == 1 and dtype.is_floating_point]
    if small:
        raise NotRun(f"opcheck computes with the inputs, which torch cannot do in {small[0].removeprefix('torch.')}")
    return _opcheck(case, "test_schema", "test_autograd_registration", "test_aot_dispatch_dynamic")


def torch_gradients(case: Case) -> str:
    """Check that a registered backward formula agrees with numerical gradients."""
    call = _TorchCall(case)
    torch = call.torch
    dtype = next((dtype for dtype in (torch.float64, torch.float32) if call.takes(dtype)), None)
    if dtype is None:
        raise NotRun("it takes neither float64 nor float32 tensors, of which torch takes differences")
    tensors = [
        tensor.to(dtype).requires_grad_() if tensor.is_floating_point() else tensor
        for tensor in (tensor.detach().clone() for tensor in call.tensors)
    ]
    if not any(tensor.requires_grad for tensor in tensors):
        raise NotRun("no input has gradients")
    results = [result for result in call.flat(call(*tensors)) if result.requires_grad]
    if not results:
        raise NotRun("no output has gradients")
    try:
        sum(result.sum() for result in results).backward()
    except RuntimeError as error:
        if "autograd formula" not in str(error):
            raise
        raise NotRun(
            "no backward formula is registered (register_autograd on what exporters.custom_op returns)"
        ) from None
    # Numerical gradients in float32 are accurate to about one percent.
    limits: dict[str, Any] = {} if dtype is torch.float64 else {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2}
    tensors = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
    with quiet():
        torch.autograd.gradcheck(lambda *given: tuple(call.flat(call(*given))), tuple(tensors), **limits)
    return "" if dtype is torch.float64 else "in float32, to within 0.01"


def torch_export(case: Case) -> str:
    """Check that an exported model of the op returns in ONNX Runtime what it returns in torch."""
    if not is_installed("onnxruntime"):
        raise NotRun(NO_ONNXRUNTIME)
    call = _TorchCall(case)
    if not call.tensors:
        raise NotRun("it has no tensors among its inputs, without which a model is a constant")
    torch = call.torch

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined] # torch is imported late
        def forward(self, *tensors: Any) -> Any:
            return tuple(call.flat(call(*tensors)))

    import exporters

    model = Model().eval()
    with quiet():
        program = exporters.export(model, tuple(call.tensors), verbose=False)
        report = exporters.verify(model, tuple(call.tensors), program)
    if not report.ok:
        raise AssertionError(str(report))
    return "to a model and back"


def _opcheck(case: Case, *tests: str) -> str:
    call = _TorchCall(case)
    # To opcheck, NaN differs from NaN.
    tensors = call.made([_without_nan(array) if _has_nan(array) else array for array in case.arrays])
    with quiet():
        if any(map(_has_nan, call.arrays(call(*tensors)))):
            raise NotRun("there is NaN among the outputs, which opcheck takes for different from NaN")
        results = call.torch.library.opcheck(
            call.operator, call.arguments(tensors), call.attributes, test_utils=tests, raise_exception=False
        )
    for name, result in results.items():
        if isinstance(result, Exception):
            raise AssertionError(f"opcheck's {name}: {result}") from result
    return ""


def _has_nan(array: Any) -> bool:
    return array is not None and array.dtype.kind in "fV" and bool(np.isnan(array.astype(np.float64)).any())


def _without_nan(array: Any) -> Any:
    return np.where(np.isnan(array.astype(np.float64)), array.dtype.type(0), array)


class _TorchCall:
    """A call of the op's torch operator; calling it takes the tensors of the inputs that are present."""

    def __init__(self, case: Case) -> None:
        try:
            import onnxscript  # noqa: F401
            import torch
        except ImportError as error:
            raise NotRun(f"{_NO_TORCH} ({error})") from None
        _check_exporters()
        import exporters
        from exporters._custom_op import registered_for
        from exporters._torch import tensors

        op, signature = case.op, case.signature
        if op.shape_function is None:
            raise NotRun("no shape function is registered, without which torch cannot trace it")
        tensor_attributes = [a.name for a in signature.attributes if a.kind is AttributeKind.TENSOR]
        if not set(tensor_attributes).isdisjoint(case.sample.attributes):
            raise NotRun(f"torch has no tensor attributes, such as {tensor_attributes[0]}")
        lacking = [array.dtype for array in (*case.arrays, *case.outputs) if array is not None]
        lacking = [dtype for dtype in lacking if dtype not in tensors.TORCH_DTYPES]
        if lacking:
            raise NotRun(f"torch has no tensors of {dtype_name(lacking[0])}")
        try:
            self.operator = registered_for(op) or exporters.custom_op(op, _own_name(op.domain, op.name, op.version))
        except exporters.ExportError as error:
            raise NotRun(str(error)) from None
        self.torch = torch
        self.attributes = {name: value for name, value in case.sample.attributes.items() if value is not None}
        self._case = case
        self._present = [array is not None for array in case.arrays]
        self._tensors = tensors
        self.tensors = self.made(case.arrays)

    def made(self, arrays: Sequence[Any]) -> list[Any]:
        """Convert the arrays that are not None to tensors."""
        cpu = self.torch.device("cpu")
        return [self._tensors.as_tensor(array, cpu) for array in arrays if array is not None]

    def takes(self, torch_dtype: Any) -> bool:
        """Return whether every floating-point input may have this dtype."""
        dtype = self._tensors.numpy_dtype(torch_dtype)
        declared = self._case.signature.parameters(len(self._case.arrays))
        pairs = [(item, array) for item, array in zip(declared, self._case.arrays, strict=True) if array is not None]
        return all(dtype in item.type.dtypes for item, array in pairs if array.dtype.kind not in "iub")

    def arguments(self, tensors: Any) -> tuple[Any, ...]:
        """Return the operator's positional arguments: None for an absent input, one list for a variadic input."""
        present = iter(tensors)
        values = [next(present) if is_present else None for is_present in self._present]
        if not self._case.signature.is_variadic:
            return tuple(values)
        singles = len(self._case.signature.inputs) - 1
        values += [None] * (singles - len(values))
        return (*values[:singles], values[singles:])

    def __call__(self, *tensors: Any) -> Any:
        return self.operator(*self.arguments(tensors), **self.attributes)

    def flat(self, result: Any) -> list[Any]:
        """Return the tensors of a result as a flat list."""
        if isinstance(result, self.torch.Tensor):
            return [result]
        return [tensor for item in result for tensor in self.flat(item)]

    def arrays(self, result: Any) -> list[Any]:
        """Return the tensors of a result as arrays."""
        return [self._tensors.as_array(tensor) for tensor in self.flat(result)]


def _check_exporters() -> None:
    """Raise an ImportError if `import exporters` finds another module than this project's package."""
    import exporters

    expected = Path(__file__).resolve().parents[2] / "exporters" / "__init__.py"
    found = getattr(exporters, "__file__", None)
    if found is None or Path(found).resolve() != expected:
        raise ImportError(
            f"`import exporters` finds {found or 'a folder without a module'}, which hides the package of this name "
            "that comes with pyops; rename it"
        )


def _own_name(domain: str, name: str, version: int) -> str:
    """Return a torch name for an op that has no registered torch operator."""
    return f"pyops_testing::{''.join(char if char.isalnum() else '_' for char in f'{domain}_{name}')}_{version}"
