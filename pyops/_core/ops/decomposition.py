"""A decomposition: what an op is, as a function of torch or of onnxscript, beside the kernels that compute it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import DeclarationError
from ..schema.signature import Signature
from .source_location import source_line


@dataclass(frozen=True)
class Decomposition:
    """A function that says what an op is.

    Attributes
    ----------
    signature : Signature
        The op's.
    function : callable
        A function of torch tensors, or an ``onnxscript.OnnxFunction``.
    pattern_only : bool
        Whether it only describes nodes that the op may replace, and is neither body nor reference.
    """

    signature: Signature
    function: Any
    pattern_only: bool = False

    @property
    def is_onnxscript(self) -> bool:
        """Return whether the function is one of onnxscript, which is a function of ONNX already."""
        return hasattr(self.function, "to_function_proto")

    @property
    def name(self) -> str:
        """Return the op's name and the line of the declaration, for messages; most functions are called ``_``."""
        written = self.function.function if self.is_onnxscript else self.function
        return f"{self.signature.qualified_name}: the decomposition at {source_line(written)}"

    def validate(self) -> None:
        """Check that the function takes what the op takes.

        Raises
        ------
        DeclarationError
            It cannot be called with the op's inputs and attributes; or it is of onnxscript, and an input is variadic.
        """
        if self.is_onnxscript:
            self._validate_onnxscript()
            return
        try:
            self.signature.check_callable(self.function)
        except DeclarationError as error:
            raise DeclarationError(f"{self.name}: {str(error).partition(': ')[2]}") from None

    def _validate_onnxscript(self) -> None:
        signature = self.signature
        if signature.is_variadic or signature.outputs[-1].variadic:
            raise DeclarationError(f"{self.name} cannot be variadic, as ONNX's functions are not; write it in torch")
        proto = self.function.to_function_proto()
        names = sorted([*proto.attribute, *(item.name for item in proto.attribute_proto)])
        written = len(proto.input), len(proto.output), names
        declared = len(signature.inputs), len(signature.outputs), sorted(item.name for item in signature.attributes)
        if written != declared:
            raise DeclarationError(
                f"{self.name} has {written[0]} inputs, {written[1]} outputs and the attributes {names}; expected what "
                f"{signature} has"
            )
