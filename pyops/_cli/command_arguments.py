"""Parsing of command-line arguments: ops, modules, inputs and attributes."""

from __future__ import annotations

import ast
import importlib
import os
import re
import runpy
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from .. import Op
from .._core import AnyOp, AttributeKind, Signature, describe_missing, import_plugins_for, op_versions
from .._support.element_types import ELEMENT_TYPES, STRING, DType, describe, dtype_name, from_type_str, native_dtype
from ..errors import did_you_mean
from ..testing._random_inputs import random_array
from .output import in_options

_GENERATED = re.compile(r"(?P<type>\w+)\[(?P<shape>(\s*\d+\s*(,\s*\d+\s*)*,?)?\s*)\]")

_NO_LITERAL = re.compile(r"\s*[+-]?(inf|nan)\s*")  # numbers for which Python has no literal


def import_modules(names: Iterable[str]) -> None:
    """Import modules, or run files, that declare ops.

    Raises
    ------
    typer.BadParameter
        A module or file does not exist.
    """
    for name in names:
        import_module(name)


def import_module(name: str) -> dict[str, Any]:
    """Import a module, or run a file as one; return its names.

    Raises
    ------
    typer.BadParameter
        The module or file does not exist.
    """
    # Unlike ``python -m``, the installed script does not have the working directory on its path.
    here = os.fspath(Path.cwd())  # as sys.path has it
    if here not in sys.path:
        sys.path.insert(0, here)
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise typer.BadParameter(f"there is no file {name!r} (from {here})")
        return runpy.run_path(name, run_name=Path(name).stem)
    try:
        return vars(importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, and one of its own imports failed
        raise typer.BadParameter(f"there is no module {name!r} (also searched in {here})") from error


def find_op(spec: str) -> AnyOp:
    """Return the op given as ``module:op``, ``file.py:op`` or ``domain::Name``.

    Raises
    ------
    typer.BadParameter
        The op does not exist.
    """
    if "::" in spec:
        return _declared(spec)
    module, colon, name = spec.rpartition(":")
    if not colon:
        raise typer.BadParameter(f"expected module:op, file.py:op or domain::Name, got {spec!r}")
    names = import_module(module)
    ops = {key: value for key, value in names.items() if isinstance(value, Op)}
    if name not in ops:
        known = ", ".join(sorted(ops)) or "none"
        kind = f"{name} is a {type(names[name]).__name__} there" if name in names else f"it has no {name}"
        raise typer.BadParameter(f"{module} declares no op {name!r} ({kind}); its ops: {known}")
    return ops[name]


def _declared(spec: str) -> AnyOp:
    domain, _, name = spec.rpartition("::")
    import_plugins_for([domain])
    versions = op_versions(domain, name)
    if versions:
        return versions[max(versions)]
    raise typer.BadParameter(in_options(describe_missing(domain, name, 1)))


def read_arrays(given: Iterable[str]) -> list[tuple[str, Any]]:
    """Return the arrays given as ``name=file.npy``, or ``name=float32[2,3]`` for random values, with their names.

    Raises
    ------
    typer.BadParameter
        An argument has neither form, or the file does not contain a single array.
    """
    random = np.random.default_rng(0)
    found = []
    for item in given:
        name, equals, source = item.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"expected NAME=FILE.npy or NAME=TYPE[SHAPE], got {item!r}")
        match = _GENERATED.fullmatch(source.strip())
        found.append((name, _load(source) if match is None else _generate(match, random)))
    return found


def _load(source: str) -> Any:
    if not Path(source).is_file():
        raise typer.BadParameter(
            f"there is no file {source!r}; save the array with np.save, or write random ones as float32[2,3]"
        )
    try:
        # Unpickling could run code.
        array = np.load(source, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise typer.BadParameter(f"{source!r} cannot be read: {error}") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise typer.BadParameter(f"{source!r} contains several arrays; save each in its own .npy file")
    return array.astype(native_dtype(array.dtype), copy=False)


def _generate(match: re.Match[str], random: np.random.Generator) -> Any:
    dtypes = {dtype_name(row.dtype): row.dtype for row in ELEMENT_TYPES}
    name = match["type"]
    if name not in dtypes:
        raise typer.BadParameter(f"{name!r} is not an element type{did_you_mean(name, dtypes)}; one is float32")
    shape = tuple(int(size) for size in match["shape"].replace(" ", "").split(",") if size)
    dtype = dtypes[name]
    try:
        return random_array(dtype, shape, random)
    except (ValueError, MemoryError, OverflowError) as error:
        raise typer.BadParameter(f"{match[0]} is too large for this machine ({error}); write smaller sizes") from error


def as_feed(given: Sequence[tuple[str, Any]], inputs: Sequence[Any]) -> dict[str, Any]:
    """Return the feed for a session, from named arrays.

    Parameters
    ----------
    inputs : sequence of onnxruntime.NodeArg
        The session's inputs.

    Raises
    ------
    typer.BadParameter
        An input is missing, unknown or given twice.
    """
    wanted = {item.name: item for item in inputs}
    feed = {name: array for name, (array,) in _by_name(given, "the model", list(wanted)).items()}
    missing = [item for name, item in wanted.items() if name not in feed]
    if missing:
        options = " ".join(f"--input '{item.name}={_example(item.type, item.shape)}'" for item in missing)
        raise typer.BadParameter(f"the model needs more inputs, for example {options}")
    for name, array in feed.items():
        if row := from_type_str(wanted[name].type):
            _check_type(name, array, (row.dtype,))
    return feed


def _check_type(name: str, array: Any, dtypes: Sequence[DType]) -> None:
    dtype = STRING if array.dtype.kind in "UT" else array.dtype
    if dtype not in dtypes:
        known = dict.fromkeys(map(dtype_name, dtypes))
        random = f"{name}={next(iter(known))}{list(array.shape)}".replace(" ", "")
        raise typer.BadParameter(
            f"input {name!r} is {describe(array)}; expected {' or '.join(known)}: save the file in that type, or write "
            f"--input '{random}' for random values"
        )


def _by_name(given: Sequence[tuple[str, Any]], owner: str, known: Sequence[str], variadic: str = "") -> dict[str, Any]:
    """Return the arrays given for each input as a list, of one unless the input is the variadic one."""
    by_name: dict[str, list[Any]] = {}
    for name, array in given:
        if name not in known:
            raise typer.BadParameter(f"{owner} has no input {name!r}; it has {', '.join(known) or 'none'}")
        if name in by_name and name != variadic:
            raise typer.BadParameter(f"input {name!r} is given twice")
        by_name.setdefault(name, []).append(array)
    return by_name


def _example(type_str: str, shape: Sequence[Any]) -> str:
    name = "float32" if (row := from_type_str(type_str)) is None else dtype_name(row.dtype)
    return f"{name}[{','.join(str(dim) if isinstance(dim, int) else '2' for dim in shape)}]"


def as_call(signature: Signature, given: Sequence[tuple[str, Any]]) -> list[Any]:
    """Return the inputs of an op by position, from named arrays; a variadic one may be given several times.

    Raises
    ------
    typer.BadParameter
        An input is missing, unknown, or given twice.
    """
    variadic = signature.inputs[-1].name if signature.is_variadic else ""
    by_name = _by_name(given, str(signature), [item.name for item in signature.inputs], variadic)
    inputs: list[Any] = []
    for item in signature.inputs:
        if item.name not in by_name and not item.optional and not item.variadic:
            example = f"--input '{item.name}={dtype_name(item.type.dtypes[0])}[2,3]'"
            raise typer.BadParameter(f"{signature} needs input {item.name!r}, for example {example}")
        for array in by_name.get(item.name, ()):
            _check_type(item.name, array, item.type.dtypes)
        inputs += by_name.get(item.name, [] if item.variadic else [None])
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def read_attributes(signature: Signature, given: Iterable[str]) -> dict[str, Any]:
    """Return the attributes given as ``name=value``, where the value is a Python literal or a plain string.

    Raises
    ------
    typer.BadParameter
        An attribute is unknown, or its value is malformed.
    """
    values = {}
    for item in given:
        name, equals, text = item.partition("=")
        attribute = signature.attribute(name)
        if not equals or attribute is None:
            known = ", ".join(attribute.name for attribute in signature.attributes) or "none"
            raise typer.BadParameter(f"expected NAME=VALUE with an attribute of {signature} ({known}), got {item!r}")
        if attribute.kind is AttributeKind.TENSOR:
            values[name] = _load(text)
        elif attribute.kind is AttributeKind.STRING:
            values[name] = text
        elif attribute.kind is AttributeKind.FLOAT and _NO_LITERAL.fullmatch(text):
            values[name] = float(text)
        else:
            try:
                values[name] = ast.literal_eval(text)
            except (ValueError, SyntaxError) as error:
                raise typer.BadParameter(f"attribute {name!r} is {text!r}; expected {attribute.spelling}") from error
    return values
