"""Pickling of ops: by reference to their module, or by value if they are defined in a notebook, script or function.

An op that arrives by value is declared, unless it is declared already. Only cloudpickle pickles by value; to pickle, an
op of a script is what its other functions are: a name in ``__main__``.
"""

from __future__ import annotations

import copyreg
import inspect
import pickle
import sys
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType
from typing import Any

from ...errors import ChangedOpWarning, PickleError, warn
from ..schema.signature import Signature
from ..unpickling import unpickle
from . import op_registry
from .op import AnyOp, Op

PYTHON = list(sys.version_info[:2])
"""The version of Python. Code that travels is bytecode for one version, and ends the process of another."""

# The ops that were declared because they arrived by value, with the kernel that they arrived with, and a digest of the
# bytes from which each was last loaded.
_arrived: weakref.WeakKeyDictionary[AnyOp, Any] = weakref.WeakKeyDictionary()
_loaded: weakref.WeakKeyDictionary[AnyOp, bytes] = weakref.WeakKeyDictionary()


def is_importable(op: AnyOp) -> bool:
    """Return whether importing the op's module, in another process, gives the op."""
    module = sys.modules.get(op.__module__)
    return op.__module__ != "__main__" and getattr(module, op.__name__, None) is op


def fingerprint(op: AnyOp) -> str:
    """Return a digest of the code of an op's kernels, shape function and setup function.

    It is the same for the same source in every process of one version of Python. Defaults, and what the functions
    refer to, are not part of it.
    """
    import hashlib  # a declaration does not need it

    functions = {**op.kernels, "shapes": op.shape_function, "setup": op.setup}
    codes = {
        name: getattr(inspect.unwrap(function), "__code__", None) for name, function in functions.items() if function
    }
    spelled = repr([(name, _format(code)) for name, code in sorted(codes.items()) if code is not None])
    return hashlib.sha256(spelled.encode()).hexdigest()


def _format(constant: Any) -> Any:
    if isinstance(constant, CodeType):
        names = constant.co_names, constant.co_varnames, constant.co_freevars
        return constant.co_code, names, [_format(item) for item in constant.co_consts]
    if isinstance(constant, frozenset):  # its order depends on hashes, which differ between processes
        return sorted(map(repr, constant))
    return [_format(item) for item in constant] if isinstance(constant, tuple) else repr(constant)


def check_declared(op: AnyOp, signature: str, spelled: str, code: str) -> None:
    """Compare a declared op with the one of the process that pickled it.

    Parameters
    ----------
    signature : str
        The ``repr`` of the other op's signature; `spelled` is its text.
    code : str
        Its `fingerprint`; empty if it cannot be compared.

    Raises
    ------
    PickleError
        The signature differs.

    Warns
    -----
    ChangedOpWarning
        The code differs.
    """
    if repr(op.signature) != signature:
        hidden = (
            ", with another default, out, state, may_inplace or output name" if str(op.signature) == spelled else ""
        )
        raise PickleError(
            f"{op.signature.qualified_name} was pickled as {spelled}, but is declared here as {op.signature}{hidden} "
            f"({op.location}); let both processes import the same version of it"
        )
    if code and code != fingerprint(op):
        warn(
            f"{op.signature.qualified_name} has different code here than where it was pickled; the code here runs "
            f"({op.location}): let both processes import the same version of it",
            ChangedOpWarning,
        )


def check_python(pickled: list[int], what: str, own: list[int] = PYTHON) -> None:
    """Raise a `PickleError` if the version of Python that pickled something by value is not this one."""
    if pickled != own:
        theirs, ours = (".".join(map(str, version)) for version in (pickled, own))
        raise PickleError(
            f"the code of {what} was pickled with Python {theirs}, and this is Python {ours}; use the same, or move it "
            "to a module that both import"
        )


def is_replaceable(op: AnyOp) -> bool:
    """Return whether an op is declared only because it arrived by value, so that a newer arrival replaces it."""
    return _arrived.get(op) is op.kernels["cpu"]


def load(value: bytes, found: AnyOp | None) -> AnyOp:
    """Return the op that `by_value` pickled, and declare it.

    Parameters
    ----------
    found : Op or None
        The op declared under its name. If it was loaded from equal bytes, it is returned. Equal code is not enough: a
        function also has the values that it refers to.
    """
    import hashlib

    digest = hashlib.sha256(value).digest()
    if found is not None and _loaded.get(found) == digest:
        return found
    op: AnyOp = pickle.loads(value)
    _loaded[op] = digest
    return op


def _reduce(op: AnyOp) -> str | tuple[Any, ...]:
    if is_importable(op):
        return op.__name__
    # By value or by reference, as each pickler does for the functions of a script: cloudpickle pickles the carrier with
    # its attributes, and pickle as a name that the other process, which has the script too, finds in its own op.
    carrier = op._carrier
    carrier.__module__, carrier.__qualname__ = op.__module__, f"{op.__name__}._carrier"
    # Sessions use neither samples nor decompositions, which need hypothesis and torch.
    unused = {"samples", "decompositions"}
    vars(carrier).update(body={name: value for name, value in op_registry.body_of(op).items() if name not in unused})
    # The state is pickled after the op itself, because a kernel may refer to its op.
    state = {"body": carrier, "signature": op.signature, "code": fingerprint(op)}
    return unpickle, ("op", op.signature, PYTHON), state, None, None, partial(unpickle, "body of an op")


def arriving(signature: Signature, python: list[int]) -> AnyOp:
    """Return the op declared with this domain, name and version, or a new one that `declare_arrived` fills."""
    check_python(python, signature.qualified_name)
    found = op_registry.op_versions(signature.domain, signature.name).get(signature.version)
    if found is not None and (found.signature == signature or not is_replaceable(found)):
        return found
    op: AnyOp = Op.__new__(Op)
    op.signature = signature
    return op


def declare_arrived(op: AnyOp, state: Mapping[str, Any]) -> None:
    body = vars(state["body"]).get("body", {})
    signature = state["signature"]
    if "kernels" in vars(op) and not is_replaceable(op):
        check_declared(op, repr(signature), str(signature), state["code"])
        return
    if body.get("signature") != signature:
        raise PickleError(
            f"{signature.qualified_name} was pickled by its name in a script, which is another op in the script of "
            "this process; let both run the same one"
        )
    arriving: AnyOp = Op.__new__(Op)
    target = arriving if "kernels" in vars(op) else op
    vars(target).update(body)
    declared = op_registry.declare_op(target)
    _arrived[declared] = declared.kernels["cpu"]
    _loaded.pop(declared, None)


copyreg.pickle(Op, _reduce)


def by_value(thing: Any, what: str) -> bytes:
    """Pickle a function or an op with its code, using cloudpickle.

    Raises
    ------
    PickleError
        cloudpickle is not installed, or something that the code refers to cannot be pickled.
    """
    try:
        import cloudpickle
    except ImportError:
        raise PickleError(
            f"{what} is defined in {thing.__module__} and not in a module that another process can import; move it to "
            'one, or install cloudpickle, which pickles its code: pip install "onnx-pyops[workers]"'
        ) from None
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    try:
        return dumps(thing)
    except Exception as error:  # whatever the pickling of an object raises
        raise PickleError(f"{what} refers to something that cannot be pickled: {error}") from error
