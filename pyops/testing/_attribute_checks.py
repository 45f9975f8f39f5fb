"""Checks of attributes: their defaults, and the values that a kernel gets from a node."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .._ops import registry
from .._ops.op import AnyOp, Op
from .._schema.attribute import Attribute
from .._schema.dtypes import STRING
from ..errors import InputError
from ._case import Case, NotRun, quiet
from ._engines import ENGINES, make_session, why_not
from ._sample import Sample


def attribute_defaults(case: Case) -> str:
    """Check that every function registered for the op has the declared defaults, and the kernel accepts them."""
    optional = [attribute for attribute in case.signature.attributes if not attribute.required]
    if not optional:
        raise NotRun("no attribute has a default")
    for difference in _differing_defaults(case.op):
        raise AssertionError(difference)
    notes = []
    for attribute in optional:
        if attribute.name in case.sample.attributes:
            given = {name: value for name, value in case.sample.attributes.items() if name != attribute.name}
            notes += case.refused(
                f"with the default of {attribute.name!r}", case.arrays, case.signature.convert_attributes(given)
            )
    return "; ".join(notes)


def attributes(case: Case) -> str:
    """Check that a kernel gets the same attribute types and values from a node as in a plain call."""
    if not case.signature.attributes:
        raise NotRun("the op has no attributes")
    engines = [engine for engine in ENGINES if why_not(engine, case) is None]
    seen: list[dict[str, Any]] = []

    def spy(*inputs: Any, **given: Any) -> Any:
        seen.append({name: value for name, value in given.items() if name != "out"})
        return tuple(case.outputs) if case.signature.returns_tuple else case.outputs[0]

    wanted = case.attributes
    with registry.isolated_declarations(), quiet():
        op = Op(replace(case.signature, domain="pyops.testing"), spy)
        op.shape_function = case.op.shape_function
        registry.declare(op)
        model = Sample(op, *case.arrays, **case.sample.attributes).model()
        for engine in engines:
            seen.clear()
            make_session(model, engine).run(None, case.sample.feed)
            for name, value in seen[-1].items():
                if _spell(value) != _spell(wanted[name]):
                    raise AssertionError(
                        f"attribute {name!r} is {value!r} in a session of the {engine} engine; a plain call has "
                        f"{wanted[name]!r}"
                    )
    return ", ".join(engines)


def _differing_defaults(op: AnyOp) -> Iterator[str]:
    """Yield a message for each default of a kernel or of the shape function that is not the declared one."""
    functions: dict[str, Callable[..., Any] | None] = {"the shape function": op.shape_function}
    functions |= {f"the {device} kernel": function for device, function in op.kernels.items()}
    for what, function in functions.items():
        if function is None:
            continue
        parameters = inspect.signature(function).parameters
        for attribute in op.signature.attributes:
            parameter = parameters.get(attribute.name)
            if attribute.required or parameter is None or parameter.default is parameter.empty:
                continue
            if not _is_default(attribute, parameter.default):
                yield (
                    f"{what} has the default {attribute.name}={parameter.default!r}; declared is "
                    f"{attribute.name}={attribute.default!r}"
                )


def _is_default(attribute: Attribute, value: Any) -> bool:
    try:
        converted = attribute.convert(value)
    except InputError:
        return False
    return _spell(converted) == _spell(attribute.default) or (
        isinstance(value, np.ndarray) and np.array_equal(value, attribute.default)
    )


def _spell(value: Any) -> str:
    """Format the type and the whole value of an attribute, so that NaN equals NaN and 1 differs from True."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape} {value.tolist() if value.dtype == STRING else value.tobytes().hex()}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} {list(map(_spell, value))}"
    return f"{type(value).__name__} {value!r}"
