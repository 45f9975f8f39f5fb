"""Pickling of sessions: a pickle says what a session is made from, so that another process can make an equal one.

A pickle holds a dictionary of plain values, the recipe. It has the model's path and digest or its bytes, the session
options, and for each op its module, or its code.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
import sys
import uuid
from collections.abc import Callable
from typing import Any

import onnxruntime

from ..._support.builtin_operators import DOMAINS
from ...errors import EngineError, PickleError
from .. import satellites
from ..models import model, op_resolution
from ..ops import extensions_decorators, op_registry
from ..ops.op import AnyOp, Op
from ..ops.op_pickling import PYTHON as _PYTHON
from ..ops.op_pickling import by_value, check_declared, check_python, fingerprint, is_importable, is_replaceable, load
from .native.session_options import config_entries
from .session_arguments import Origin, check_unchanged, file_digest

Recipe = dict[str, Any]


class Whole(dict[str, Any]):
    """A recipe, or a part of it, from a pickle."""

    def __missing__(self, key: str) -> Any:
        raise PickleError(
            f"the pickle of a session has no {key!r}, so it is damaged or was made by another version of pyops; pickle "
            "the session again"
        )


PROCESS = [uuid.uuid4().hex]
"""The identity of this process; sessions that it has pickled itself keep all their threads here."""

# With it, every process would write the same file.
_LEFT_OUT = {"optimized_model_filepath"}


def recipe_of(origin: Origin, session: Any) -> Recipe:
    """Return what is pickled for a session.

    Raises
    ------
    PickleError
        Something in the session cannot be pickled, or would be lost.
    FileNotFoundError, ModelError
        The model's file is gone, or has changed since the session was made.
    """
    check_unchanged(origin)
    source = origin.source
    if isinstance(source, str):
        origin.digest = origin.digest or file_digest(source, origin.stamp)
    recipe: Recipe = {
        "versions": _versions(),
        "python": _PYTHON,
        "process": PROCESS[0],
        "model": source,
        "digest": origin.digest if isinstance(source, str) else _digest(source),
        "options": None,
        "make_options": None,
        "providers": origin.providers,
        "provider_options": origin.provider_options,
        "engine": origin.engine,
        "threads": origin.threads,
        "kwargs": origin.kwargs,
        "ops": [_describe(op) for op in origin.ops],
    }
    if callable(origin.options):
        recipe["make_options"] = _dump_function(origin.options)
    elif origin.options is not None:
        _check_nothing_lost(origin, session)
        recipe["options"] = _describe_options(session.get_session_options())
    described = {**recipe, "process": "", "model": source if isinstance(source, str) else ""}
    return recipe | {"key": _digest(repr(described).encode())}


def _versions() -> dict[str, str]:
    return {"pyops": sys.modules["pyops"].__version__, "onnxruntime": onnxruntime.__version__}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _dump_function(function: Callable[..., Any]) -> tuple[bytes, str | None]:
    """Pickle the function that makes session options: by reference if other processes can import it.

    Return the pickle, and what its code is called if it is pickled by value.
    """
    if getattr(function, "__module__", "__main__") != "__main__":
        try:
            return pickle.dumps(function), None
        except (pickle.PicklingError, AttributeError, TypeError):  # a lambda, or a function in a function
            pass
    what = f"the function {getattr(function, '__qualname__', function)} given as sess_options"
    return by_value(function, what), what


def _describe(op: AnyOp) -> dict[str, Any]:
    signature = op.signature
    by_import = is_importable(op) or _is_provided(op)
    return {
        "name": (signature.domain, signature.name, signature.version),
        "signature": repr(signature),
        "spelled": str(signature),
        "code": fingerprint(op),
        "module": op.__module__ if by_import else None,
        "value": None if by_import else by_value(op, signature.qualified_name),
    }


def _is_provided(op: AnyOp) -> bool:
    """Return whether importing the op's module provides the op, though not as an attribute of the module."""
    if op.__module__ == "__main__":
        return False
    return op.domain in satellites.providers or extensions_decorators.adopted_ops().get((op.domain, op.name)) is op


def _describe_options(options: Any) -> dict[str, Any]:
    names = [name for name, value in vars(type(options)).items() if isinstance(value, property)]
    values = {name: getattr(options, name) for name in sorted(set(names) - _LEFT_OUT)}
    try:
        entries = config_entries(options)
    except EngineError as error:
        raise PickleError(
            f"the configuration entries of the session options cannot be read here ({error}); give sess_options as a "
            "function that returns them, which every process calls"
        ) from error
    return {"values": values, "entries": entries}


def _check_nothing_lost(origin: Origin, session: Any) -> None:
    """Raise if the session options are known to have something that cannot be read from them."""
    source = model.load_model(origin.source)
    hosted = {(op.domain, op.name) for op in origin.ops} | source.functions()
    foreign = {key for key, _ in source.uses} - hosted
    libraries = sorted("::".join(key) for key in foreign if key[0] not in DOMAINS)
    sizes = {item.name: list(item.shape) for item in session.get_inputs()}
    overridden = [
        item.name
        for item in (source.proto.graph.input if source.proto else ())
        for dim, size in zip(item.type.tensor_type.shape.dim, sizes.get(item.name, ()), strict=False)
        if not dim.HasField("dim_value") and isinstance(size, int)
    ]
    lost = {
        "the custom-op library with ": libraries,
        "the overridden dimensions of input ": overridden,
        "a provider that was added by ": ["add_provider"] if origin.options.has_providers() else [],
    }
    for what, found in lost.items():
        if found:
            raise PickleError(
                f"the session options have {what}{found[0]}, which cannot be read from them to pickle the session; "
                "give sess_options as a function that returns them, which every process calls"
            )


def origin(recipe: Recipe) -> Origin:
    """Return the origin of a recipe's session in this process, after declaring the ops that it needs.

    Raises
    ------
    PickleError
        It was pickled with another version of pyops or ONNX Runtime; or an op is not declared here and its module
        does not declare it, or is declared with another signature.
    FileNotFoundError, ModelError
        The model's file is missing, or is another one.
    """
    if recipe["versions"] != _versions():
        theirs, ours = (
            ", ".join(f"{name} {text}" for name, text in item.items()) for item in (recipe["versions"], _versions())
        )
        raise PickleError(
            f"the session was pickled with {theirs}, and this process has {ours}; install the same versions"
        )
    given = {name: recipe[name] for name in ("digest", "providers", "provider_options", "engine", "threads", "kwargs")}
    found = Origin(source=recipe["model"], stamp=None, options=None, **given)
    check_unchanged(found)
    found.ops = tuple(_declare(Whole(described), recipe["python"]) for described in recipe["ops"])
    found.options = _options(recipe["options"])
    if recipe["make_options"] is not None:
        code, what = recipe["make_options"]
        if what is not None:
            check_python(recipe["python"], what, _PYTHON)
        found.options = pickle.loads(code)
    return found


def _options(described: dict[str, Any] | None) -> Any:
    if described is None:
        return None
    described = Whole(described)
    options = onnxruntime.SessionOptions()
    for name, value in described["values"].items():
        if getattr(options, name) != value:
            setattr(options, name, value)
    for key, value in described["entries"].items():
        options.add_session_config_entry(key, value)
    return options


def _declare(described: dict[str, Any], python: list[int]) -> AnyOp:
    """Return the declared op that a recipe describes, or declare the one that it brings."""
    domain, name, version = described["name"]
    module, value = described["module"], described["value"]
    if module is not None:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise PickleError(
                f"{domain}::{name} is declared by the module {module!r}, which this process cannot import: {error}"
            ) from error
    adopted = extensions_decorators.adopted_ops().get((domain, name))
    op: Any = op_registry.op_versions(domain, name).get(version) or adopted
    if value is not None and (op is None or is_replaceable(op)):
        return load(value, op)
    if not isinstance(op, Op):
        raise PickleError(
            f"{op_resolution.describe_missing(domain, name, version)}; the session was pickled where the module "
            f"{module!r} had declared it"
        )
    check_declared(op, described["signature"], described["spelled"], described["code"] if python == _PYTHON else "")
    return op
