"""Ready-made operators in the domain ``pyops``, with torch's semantics, mostly for what torch's ONNX exporter lacks.

They are declared as users declare theirs, and are good examples to read before writing one. A model with them runs
without torch: `pyops.InferenceSession` imports this package when a model names the domain, and so does an export.
Sessions that are created otherwise have only the ops that were used until then; `declare_all` declares all of them.

Each op is an attribute of one of the modules here and, like any `Op`, callable with NumPy arrays.
"""

import importlib
import pkgutil

from .._core import AnyOp, collecting, op_versions
from ..errors import ModelError, did_you_mean

with collecting() as _declared:
    for _module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{_module.name}")

OPS = {op.name: op for op in _declared}
"""Every op of the library by its op type."""


def provide(name: str) -> AnyOp:
    """Return the op of this name without declaring it.

    Raises
    ------
    ModelError
        There is no such op.
    """
    if name not in OPS:
        raise ModelError(
            f"pyops.kernels has no op {name}{did_you_mean(name, OPS)}; if another release of pyops exported the model, "
            "export it again, or install that release"
        )
    return OPS[name]


def declare_all() -> None:
    """Declare every op of the library, for sessions that are created without pyops reading their model.

    Examples
    --------
    >>> import pyops.kernels
    >>> pyops.kernels.declare_all()
    """
    for name in OPS:
        op_versions("pyops", name)  # which asks `provide`
