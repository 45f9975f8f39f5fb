"""The IPython extension (``%load_ext pyops``): the ``%onnx_ops`` magic and shortened tracebacks."""

from __future__ import annotations

import inspect
from typing import Any

from .._ops import registry
from .._ops.op import AnyOp
from .op_table import OpTable, list_ops
from .tracebacks import shortened

_Key = tuple[str, str, int]


_SHORTENED = (Exception, KeyboardInterrupt)


class _Look:
    """The ``%onnx_ops`` magic, which compares the declared ops with those of its last call."""

    def __init__(self) -> None:
        self._last = _declared()

    def __call__(self, line: str = "") -> OpTable:
        """Show the declared ops, and what changed since the last look.

        ``%onnx_ops`` shows all ops, ``%onnx_ops mylibrary`` those of one domain.
        """
        now, last = _declared(), self._last
        self._last = now
        changed = {
            "new": now.keys() - last.keys(),
            "changed": {key for key in now.keys() & last.keys() if now[key] != last[key]},
            "gone": last.keys() - now.keys(),
        }
        notes = [f"{what} since the last look: {_spell(keys)}" for what, keys in changed.items() if keys]
        return list_ops().only(line.strip() or None, notes or ["nothing changed since the last look"])


def load_ipython_extension(shell: Any) -> None:
    """Add ``%onnx_ops`` and shorten tracebacks; called by ``%load_ext pyops``.

    If another extension already handles exceptions (``set_custom_exc``), tracebacks are left unchanged.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell
    """
    shell.register_magic_function(_Look(), "line", "onnx_ops")
    if not shell.custom_exceptions:
        shell.set_custom_exc(_SHORTENED, _show_shortened)


def unload_ipython_extension(shell: Any) -> None:
    """Undo `load_ipython_extension`; called by ``%unload_ext pyops``."""
    shell.magics_manager.magics["line"].pop("onnx_ops", None)
    if shell.custom_exceptions == _SHORTENED:
        shell.set_custom_exc((), None)


def _show_shortened(
    shell: Any, kind: type[BaseException], error: BaseException, traceback: Any, tb_offset: Any = None
) -> None:
    with shortened(error) as short:
        shell.showtraceback((kind, error, short), tb_offset=tb_offset)


def _declared() -> dict[_Key, Any]:
    return {
        (*key, version): _fingerprint(op)
        for key, versions in registry.all_versions().items()
        for version, op in versions.items()
    }


def _fingerprint(op: AnyOp) -> Any:
    """Return a value that changes when an op does, but not when the same cell runs again."""
    functions = [inspect.unwrap(function) for function in (*op.kernels.values(), op.shape_function) if function]
    bodies = [
        (getattr(function, "__code__", function), repr(getattr(function, "__defaults__", None)))
        for function in functions
    ]
    return op.signature, tuple(op.kernels), op.shape_function is None, bodies


def _spell(keys: set[_Key]) -> str:
    return ", ".join(
        f"{domain}::{name}{'' if version == 1 else f' version {version}'}" for domain, name, version in sorted(keys)
    )
