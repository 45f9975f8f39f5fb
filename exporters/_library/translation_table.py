"""The table of every translation, registered or from the kernel library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from .._lowering.translations import or_own_translation, registered, registered_source
from .._torch.operators import overloads
from .._torch_private.exporter import own_translation
from .._torch_private.operators import qualified_name
from . import library


def translation_table(*, kernels: bool = True) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return every translation, for users who call ``torch.onnx.export`` themselves.

    Parameters
    ----------
    kernels : bool
        Include the translations to `pyops.kernels`, for operators that torch's exporter does not support and for
        calls that it translates wrongly.

    Returns
    -------
    dict
        Callables by OpOverload, for ``torch.onnx.export(custom_translation_table=...)``.

    Examples
    --------
    >>> import exporters, torch
    >>> @exporters.register_translation("aten::gelu")
    ... def gelu(x, *, approximate="none"):
    ...     return exporters.opset("com.microsoft").Gelu(x)
    >>> table = exporters.translation_table()
    >>> torch.ops.aten.gelu.default in table
    True
    >>> program = torch.onnx.export(model, (x,), dynamo=True, custom_translation_table=table)  # doctest: +SKIP
    """
    own = {target: or_own_translation(target, translation) for target, translation in registered().items()}
    kernel_translations = library.translations() if kernels else {}
    return dict([*kernel_translations.items(), *own.items()])


def registered_by(torch_op: str) -> Literal["exporters", "torch", "kernels"] | None:
    """Return what translates a torch operator to ONNX.

    An operator without a translation can still be exported if torch decomposes it into others.

    Parameters
    ----------
    torch_op : str
        ``"ns::name.overload"``, or ``"ns::name"`` for any of its overloads.

    Returns
    -------
    str or None
        ``"exporters"`` for a registration by `custom_op` or `register_translation`; ``"torch"`` for torch's own
        translation in its ``torch.export`` based exporter, even if `pyops.kernels` handles calls that it
        translates wrongly; ``"kernels"`` for an op of `pyops.kernels` where torch has none; None if there is none.

    Raises
    ------
    ExportError
        torch has no such operator.

    Examples
    --------
    >>> import exporters
    >>> exporters.registered_by("aten::add.Tensor")
    'torch'
    >>> exporters.registered_by("aten::lgamma")
    'kernels'
    """
    targets = overloads(torch_op)
    if any(registered_source(target) is not None for target in targets):
        return "exporters"
    if any(own_translation(target) is not None for target in targets):
        return "torch"
    return "kernels" if any(library.find(qualified_name(target)) for target in targets) else None
