"""The example of an export, and preparation that lets more models be captured: it is undone after the capture."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from .._torch.private.operators import OpOverload
from .._torch.private.torch_export import is_fake, unvalidated_distributions
from .._torch.private.trees import flatten, registering, replace_leaves, tensor_leaves
from ..errors import CaptureError
from .sizes import check_dynamic_shapes

Model = torch.nn.Module | torch.export.ExportedProgram


@dataclass(frozen=True)
class Example:
    """A model with example arguments, and the sizes that are to be dynamic, as ``torch.export.export`` takes them.

    Attributes
    ----------
    guard : OpOverload, optional
        As for `trace.trace`.
    verbose : bool
        Print what torch prints.
    """

    model: Model
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any = None
    guard: OpOverload | None = None
    verbose: bool = False

    @property
    def of_torch(self) -> tuple[Any, tuple[Any, ...], dict[str, Any], Any]:
        """Return what ``torch.export.export`` takes."""
        return self.model, self.args, self.kwargs, self.dynamic_shapes


def check_example(example: Example) -> None:
    """Raise ExportError if a module does not take the example arguments, or `dynamic_shapes` does not match them."""
    if isinstance(example.model, torch.nn.Module):
        _check_arguments(example.model, example.args, example.kwargs)
        check_dynamic_shapes(example.model, example.args, example.kwargs, example.dynamic_shapes)


def _check_arguments(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise CaptureError if a model does not take the example arguments, or no capture supports them."""
    if any(isinstance(leaf, np.ndarray) for leaf in flatten((args, dict(kwargs)))):
        raise CaptureError("the example arguments contain a NumPy array; pass torch.from_numpy(array)")
    if isinstance(model, torch.jit.ScriptModule):
        raise CaptureError("a whole ScriptModule cannot be captured; pass the module it was made of, or dynamo=False")
    quantized = [vars(item) for item in model.modules() if type(item).__module__.startswith("torch.ao.nn.quantized")]
    if any(isinstance(value, torch.ScriptObject) for attributes in quantized for value in attributes.values()):
        raise CaptureError("quantized modules cannot be captured; export the float model, and quantize the export")
    signature = inspect.signature(model.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise CaptureError(f"the model's forward{signature} does not take the example arguments: {error}") from None


@contextmanager
def prepared(example: Example) -> Iterator[Example]:
    """Context manager: capture without checks of distributions, and with containers as trees.

    A distribution validates its parameters by conditions on their values, which a graph cannot have. The containers are
    those that torch does not know, among the arguments and, when the model has run, among its results.

    Yields
    ------
    Example
        The example with a copy of each tensor that is also another argument, or a parameter or buffer. torch treats
        such tensors as one: for ``model(x, x)`` it exports a model that ignores its first input.
    """
    model, arguments = example.model, (example.args, example.kwargs)
    with unvalidated_distributions(), registering() as register, ExitStack() as stack:
        register(arguments)
        taken: set[int] = set()
        if isinstance(model, torch.nn.Module):
            taken = {id(item) for item in (*model.parameters(), *model.buffers())}
            _forget_fakes(model)
            stack.enter_context(model.register_forward_hook(lambda *call: register(call[-1])))
        given, own = tensor_leaves(arguments), []
        for item in given:
            own.append(item.detach().clone().requires_grad_(item.requires_grad) if id(item) in taken else item)
            taken.add(id(item))
        if any(a is not b for a, b in zip(given, own, strict=True)):
            args, kwargs = replace_leaves(arguments, own)
            example = replace(example, args=args, kwargs=kwargs)
        yield example


def _forget_fakes(model: torch.nn.Module) -> None:
    """Set buffers without values to None, which plain captures leave in a model that stores what it computes.

    A model whose parameters have no values either was made so.
    """
    if any(map(is_fake, model.parameters())):
        return
    for module in model.modules():
        for name, buffer in [*module.named_buffers(recurse=False)]:
            if is_fake(buffer):
                setattr(module, name, None)


@contextmanager
def unchanged(example: Example) -> Iterator[None]:
    """Context manager: restore the modules, and the marks of dynamic sizes that torch leaves if a capture fails."""
    before = [(vars(item), dict(vars(item))) for item in tensor_leaves((example.args, example.kwargs))]
    try:
        with unchanged_attributes(example.model):
            yield
    finally:
        for attributes, kept in before:
            attributes.clear()
            attributes.update(kept)


@contextmanager
def unchanged_attributes(model: Any, parameters: bool = False) -> Iterator[None]:
    """Context manager: restore the attributes and buffers of all modules, which a run of the model may change.

    Copying the parameters as well takes memory.
    """
    modules = list(model.modules()) if _is_plain(model) else []
    before = [(vars(module), _copies(vars(module))) for module in modules]
    tensors = [*model.buffers(), *(model.parameters() if parameters else [])] if modules else []
    contents = list(map(_contents, tensors))
    try:
        yield
    finally:
        for tensor, kept in zip(tensors, contents, strict=True):
            _restore(tensor, kept)
        for attributes, copies in before:
            for name in attributes.keys() - copies.keys():
                del attributes[name]
            for name, (value, items) in copies.items():
                attributes[name] = value
                _restore(value, items)


def _is_plain(model: Any) -> bool:
    return isinstance(model, torch.nn.Module) and not isinstance(model, torch.jit.ScriptModule)


def _copies(attributes: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return each attribute's value, with a copy of its contents if it is a tensor, a dict, a list or a set."""
    return {name: (value, _contents(value)) for name, value in attributes.items()}


def _contents(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value.copy() if isinstance(value, (dict, list, set)) else None


def _restore(value: Any, items: Any) -> None:
    if isinstance(value, torch.Tensor):
        # torch cannot compare sparse tensors and some rarer ones; these stay as they are.
        with contextlib.suppress(NotImplementedError):
            if not torch.equal(value, items):
                value.data.copy_(items)  # by .data, because autograd would reject gradients that were begun before
    elif items is not None and not _same(value, items):
        value.clear()
        if isinstance(value, list):
            value.extend(items)
        else:
            value.update(items)


def _same(value: Any, items: Any) -> bool:
    if isinstance(value, set):
        return bool(value == items)
    pairs = (value.items(), items.items()) if isinstance(value, dict) else (enumerate(value), enumerate(items))
    return [(key, id(item)) for key, item in pairs[0]] == [(key, id(item)) for key, item in pairs[1]]
