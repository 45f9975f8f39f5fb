"""The exported program, which runs in a pyops session."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from pyops._support.atomic_files import whole_file

from ._capture.decisions import CaptureDecision
from ._capture.model_arguments import input_values
from ._finishing.optimization import optimize
from ._report import Fallback


class Program(torch.onnx.ONNXProgram):
    """A ``torch.onnx.ONNXProgram`` that runs its model in a `pyops.InferenceSession`; `export` returns it.

    Attributes
    ----------
    fallbacks : tuple of Fallback
        One entry per torch operator that falls back; empty without ``fallback=``.
    decisions : tuple of CaptureDecision
        What the capture specialized: conditions, numbers, sizes and values. With ``capture="export"``, only sizes that
        should be dynamic, and conditions on them.
    captured : torch.export.ExportedProgram or None
        The calls of the model's code, before torch decomposes them; None with ``dynamo=False``.
    unverified : str
        Why `captured` was not compared with the model for the example arguments; ``""`` if it was, or
        the model is an ``ExportedProgram``.
    replaced : Replacement or None
        The report of ``replace=``.

    Examples
    --------
    >>> import exporters, torch
    >>> program = exporters.export(torch.nn.ReLU().eval(), (torch.zeros(3),))
    >>> program(torch.tensor([-1.0, 0.0, 2.0]))
    (tensor([0., 0., 2.]),)
    >>> program.model_proto.graph.node[0].op_type
    'Relu'
    """

    fallbacks: tuple[Fallback, ...] = ()
    decisions: tuple[CaptureDecision, ...] = ()
    captured: torch.export.ExportedProgram | None = None
    unverified: str = ""
    replaced: Any = None

    def __repr__(self) -> str:
        unverified = [f"not compared with the model: {self.unverified}"] if self.unverified else []
        return "\n".join([super().__repr__(), *map(str, self.fallbacks), *unverified])

    def optimize(self) -> None:
        """Optimize the model in place, as `export` does by default (with ``dynamo=False``, only for ``optimize=True``).

        Values do not change, and every call of a declared op is kept.
        """
        optimize(self.model)

    def save(self, destination: str | os.PathLike[str], **options: Any) -> None:
        """Save the model; if that fails, an existing file is left unchanged.

        Parameters
        ----------
        destination : str or os.PathLike
            Path of the model; external data is written beside it.
        **options
            Options of ``torch.onnx.ONNXProgram.save``, for example ``external_data=True``.

        Raises
        ------
        OSError
            `destination` cannot be written.
        """
        with whole_file(destination) as part:
            super().save(part, **options)

    def initialize_inference_session(self, initializer: Callable[[Any], Any] | None = None) -> None:
        """Create the session that calls of the program use.

        Parameters
        ----------
        initializer : callable, optional
            Creates a session from a path or bytes; `pyops.InferenceSession` by default.
        """
        from pyops import InferenceSession

        super().initialize_inference_session(initializer or InferenceSession)

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Run the model on arguments of the structure that it was exported with.

        Returns
        -------
        tuple of torch.Tensor
            One tensor per output of the model.

        Raises
        ------
        ExportError
            The number of tensors is not that of the model's inputs, or an argument that the export made a
            constant has another value.
        BaseException
            Any exception of a kernel, unchanged.
        """
        return tuple(super().__call__(*input_values(self, args, kwargs).values()))
