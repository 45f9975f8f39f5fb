"""The exported program: runnable with pyops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import onnx_ir
import torch

import pyops
from pyops.errors import PyopsError

from .adapt import input_values
from .explanations import causes, explained
from .fallback.record import Fallback
from .finishing import declared_nodes, opset_imports
from .translating import functions
from .translating.nodes import Emitted, recorded

Model = torch.nn.Module | torch.export.ExportedProgram


class Program(torch.onnx.ONNXProgram):
    """A ``torch.onnx.ONNXProgram`` that runs its model in a `pyops.InferenceSession`; made by `export`.

    Attributes
    ----------
    fallbacks : tuple of Fallback
        The torch operators that ``fallback=`` let through, one each; empty where there are none.

    Examples
    --------
    >>> import exporters, torch
    >>> program = exporters.export(torch.nn.ReLU().eval(), (torch.zeros(3),), verbose=False)
    >>> program(torch.tensor([-1.0, 0.0, 2.0]))
    (tensor([0., 0., 2.]),)
    >>> program.model_proto.graph.node[0].op_type
    'Relu'
    """

    fallbacks: tuple[Fallback, ...] = ()

    def __repr__(self) -> str:
        fallbacks = "\n".join(map(str, self.fallbacks))
        return f"{super().__repr__()}\n{fallbacks}" if fallbacks else super().__repr__()

    def initialize_inference_session(self, initializer: Callable[[Any], Any] | None = None) -> None:
        """Make the session that calling the program uses.

        Parameters
        ----------
        initializer : callable, optional
            Makes a session from a path or bytes; `pyops.InferenceSession` unless given.
        """
        super().initialize_inference_session(initializer or pyops.InferenceSession)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Run the model on the arguments that it was exported with, or others like them.

        Returns
        -------
        tuple of torch.Tensor
            One per output of the model.

        Raises
        ------
        ExportError
            More or fewer tensors than the model has inputs.
        BaseException
            Whatever a kernel raises, as itself.
        """
        values = input_values([item.name or "" for item in self.model.graph.inputs], args, kwargs)
        return tuple(super().__call__(*values))


@dataclass(frozen=True)
class Emission:
    """What the translations of one export emitted."""

    versions: Emitted
    functions: functions.Functions

    def settle(self, model: onnx_ir.Model, *, keep_functions: bool, custom_opsets: Any) -> bool:
        """Give the model the functions and the opset imports that its nodes need.

        Returns
        -------
        bool
            Whether functions were inlined, after which there may be something to optimize.
        """
        inlined = functions.settle(model, self.functions, self.versions, keep=keep_functions)
        opset_imports.settle(model, self.versions, custom_opsets)
        declared_nodes.settle(model)
        return inlined


@contextmanager
def emission() -> Iterator[Emission]:
    """Export inside the ``with`` block; an exception of ours that torch wrapped comes out as itself."""
    failure = None
    with recorded() as versions, functions.collected() as called:
        try:
            yield Emission(versions, called)
        except Exception as error:
            ours = (cause for cause in causes(error) if isinstance(cause, PyopsError))
            failure = next(ours, None) or explained(error)
            if failure is None:
                raise
    if failure is not None:
        # Outside the handler, so that torch's error does not become the exception's context.
        raise failure
