"""The exported program: runnable with pyops."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from pyops._files import whole_file

from .._torch.recorded_arguments import input_values
from .fallbacks import Fallback
from .optimization import optimize

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

    def optimize(self) -> None:
        """Optimize the model in place, as `export` does unless ``optimize=False``.

        What it computes stays the same, and so does every call of a declared op.
        """
        optimize(self.model)

    def save(self, destination: str | os.PathLike[str], **options: Any) -> None:
        """Save the model, whole or not at all: where it fails, what was there before stays.

        Parameters
        ----------
        destination : str or os.PathLike
            The file; weights that are external data lie in another one beside it.
        **options
            As for ``torch.onnx.ONNXProgram.save``: ``external_data=True`` and the like.

        Raises
        ------
        OSError
            It cannot be written; names `destination`.
        """
        with whole_file(destination) as part:
            super().save(part, **options)

    def initialize_inference_session(self, initializer: Callable[[Any], Any] | None = None) -> None:
        """Make the session that calling the program uses.

        Parameters
        ----------
        initializer : callable, optional
            Makes a session from a path or bytes; `pyops.InferenceSession` unless given.
        """
        from pyops._runtime.session import InferenceSession  # needs onnxruntime, which exporting does not

        super().initialize_inference_session(initializer or InferenceSession)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Run the model on the arguments that it was exported with, or others like them.

        Returns
        -------
        tuple of torch.Tensor
            One per output of the model.

        Raises
        ------
        ExportError
            More or fewer tensors than the model has inputs, or another value for one of its constants.
        BaseException
            Whatever a kernel raises, as itself.
        """
        return tuple(super().__call__(*input_values(self, args, kwargs).values()))
