"""Sessions of models whose values are compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._core import Model

_DATA_FOLDER = "session.model_external_initializers_file_folder_path"


def session_of(model: Model, libraries: Iterable[str] = (), optimizing: bool = False, **settings: Any) -> Any:
    """Return a session of a model; unless it is optimizing, it computes the nodes as they are.

    Parameters
    ----------
    libraries : iterable of str
        The paths of custom-op libraries to register.
    **settings
        As for `pyops.InferenceSession`.
    """
    from onnxruntime import GraphOptimizationLevel, SessionOptions

    from .. import InferenceSession

    options = SessionOptions()
    for path in libraries:
        options.register_custom_ops_library(path)
    if not optimizing:
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    if model.folder is not None and isinstance(model.source, bytes):
        options.add_session_config_entry(_DATA_FOLDER, model.folder)  # for one session; changing it logs a warning
    return InferenceSession(model, options, **settings)  # type: ignore[arg-type]  # what load_model returns is loaded
