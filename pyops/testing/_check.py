"""`check`, which runs all checks of an op, on generated inputs if none are given."""

from __future__ import annotations

import fnmatch
import functools
import math
import os
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np

from .. import Op
from .._core import AnyOp, Attribute, AttributeKind, adopted_ops, op_versions
from .._support.element_types import DType
from .._support.progress import progress, track
from .._tolerances import check_tolerance
from ..errors import InputError, MissingDependencyError
from . import _decomposition_checks, _engine_checks, _kernel_checks, _thread_checks
from ._case import Case, Check, NotRun, copies, format_error, hide_own_frames, quiet, where_available
from ._check_report import CheckError, CheckReport, CheckResult
from ._sample import Sample
from ._variations import cast

CHECKS: dict[str, Check | EntryPoint] = {
    name: check
    for module in (_kernel_checks, _decomposition_checks, _thread_checks, _engine_checks)
    for name, check in vars(module).items()
    if isinstance(check, Check)
}
"""All checks by name, in the order in which they run.

Those that another package contributes, by entry points of the group ``pyops.checks``, are loaded when they run.
"""
CHECKS |= {entry.name: entry for entry in sorted(entry_points(group="pyops.checks"))}

_SHAPES: tuple[tuple[int, ...], ...] = ((2, 3), (3, 3), (4,), (2, 3, 4), (1, 2, 5, 5), ())

_OPTIONS = ("checks", "expected", "generate", "rtol", "atol", "raise_exception")


def check(
    op: AnyOp | Sample,
    /,
    *inputs: Any,
    checks: str | Collection[str] = "*",
    expected: Any = None,
    generate: Any = 0,
    rtol: float | None = None,
    atol: float | None = None,
    raise_exception: bool = True,
    **attributes: Any,
) -> CheckReport:
    """Check an op on one call: its kernel, its shape function, every engine, and its PyTorch operator.

    A check that cannot run (no shape function, torch is not installed, ...) is "not run" in the report, with the
    reason. Some checks derive other inputs from those given (of size 0, without dimensions); a kernel may reject
    these with an exception, which the report notes. If the checks take longer than two seconds, stderr shows which one
    runs.

    Parameters
    ----------
    op : Op or Sample
        The op, or a whole call of it. Pass a `Sample` if an attribute of the op has the name of a parameter of
        `check`.
    *inputs : numpy.ndarray or None
        The inputs of the call. If there are none, small arrays and missing required attributes are generated, or what
        the strategy of `Op.register_samples` gives, with a hundred further calls.
    checks : str or collection of str
        Names of checks, or patterns such as ``"engine_*"``; by default all. The checks that these need also run;
        the report lists them only if they fail.
    expected : array_like or tuple, optional
        The expected output, or a tuple of several.
    generate : int or hypothesis strategy
        The number of further calls to generate with hypothesis; each compares a session with the plain call. For an op
        with constraints, pass a strategy for its samples, such as ``strategies.samples(op, shapes=(3, 3))``, of which
        a hundred are generated.
    rtol, atol : float, optional
        The tolerance is ``atol + rtol * abs(expected)``. The defaults are those of
        ``torch.testing.assert_close`` for floating-point numbers, and 0 for all other types.
    raise_exception : bool
        If False, return the report even if checks failed.
    **attributes
        The attributes of the call.

    Returns
    -------
    CheckReport
        ``report.ok`` is True if no check failed, ``report["thread_safe"]`` is the result of one check, and
        ``str(report)`` is a table, as is the report in a notebook.

    Raises
    ------
    CheckError
        A check failed. ``error.report`` is the report; the cause is the error of the first failed check.
    InputError
        The arguments do not fit the op, a name in `checks` is unknown, or a tolerance is not a number of at least 0.
    MissingDependencyError
        `generate` is given, and hypothesis is not installed.

    Examples
    --------
    >>> import numpy as np, pyops
    >>> from numpy.typing import NDArray
    >>> @pyops.onnx_op("mylibrary::Halve")
    ... def halve(x: NDArray[np.float32]) -> NDArray[np.float32]:
    ...     return x / 2.0 if x.ndim else x / np.float64(2)
    >>> report = pyops.testing.check(halve, np.ones(3, np.float32), raise_exception=False)
    >>> [result.name for result in report.failed]
    ['scalar']
    """
    __tracebackhide__ = True  # pytest then shows the line that called it
    sample = _sample(op, inputs, attributes)
    _check_declared(sample.op)
    if expected is not None:
        sample = sample.with_expected(*(expected if isinstance(expected, tuple) else (expected,)))
    subject = f"{sample!r}{', generated inputs' if sample.generated else ''}"
    wanted = _wanted(checks)
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None:
            check_tolerance(name, value)
    is_strategy = hasattr(generate, "example") and hasattr(generate, "filter")
    if not is_strategy and (not isinstance(generate, int) or generate < 0):
        raise InputError(
            f"generate is {generate!r}; expected the number of samples to generate, or a strategy for them, such as "
            f"pyops.testing.strategies.samples({sample.op.__name__}, shapes=(3, 3))"
        )
    if generate == 0 and sample.generated and sample.op.samples is not None:
        generate = _engine_checks.SAMPLES
    if generate != 0:
        from .strategies import run as run  # its module says how to install hypothesis
    # In a test, pytest would show the lines with a failure.
    with progress("checking", piped="PYTEST_CURRENT_TEST" not in os.environ):
        results = _run(Case(sample, generate, rtol, atol), wanted)
    report = CheckReport(
        subject, [result for name, result in results.items() if name in wanted or result.status == "failed"]
    )
    if raise_exception and not report.ok:
        raise CheckError(report) from report.failed[0].error
    return report


def _sample(op: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Sample:
    if isinstance(op, Sample):
        if inputs or attributes:
            raise InputError("check got a sample and arguments of a call; a sample is a whole call: check(sample)")
        return op
    if not isinstance(op, Op):
        raise InputError(f"check got {op!r}; pass an operator declared with @pyops.onnx_op, or a pyops.testing.Sample")
    ambiguous = [attribute.name for attribute in op.signature.attributes if attribute.name in _OPTIONS]
    if ambiguous:
        raise InputError(
            f"{op.signature} has an attribute with the name of the option {ambiguous[0]!r} of check; pass the call as "
            f"a sample: check(pyops.testing.Sample({op.__name__}, ..., {ambiguous[0]}=...))"
        )
    named = {item.name for item in op.signature.inputs if not item.variadic}
    if inputs or named & set(attributes):
        return Sample(op, *inputs, **attributes)
    return example(op, attributes)


def example(op: AnyOp, attributes: Mapping[str, Any]) -> Sample:
    """Generate a sample that the kernel accepts: from the registered strategy, or small arrays and required attributes.

    Raises
    ------
    InputError
        The kernel rejects every shape that is tried.
    """
    signature = op.signature
    values = {a.name: _attribute(a) for a in signature.attributes if a.required} | dict(attributes)
    if not signature.inputs:
        return Sample(op, **values)
    # Two arrays for a variadic input.
    inputs = [*signature.inputs, *signature.inputs[-1:] * signature.is_variadic]
    if op.samples is None:
        samples = [Sample(op, *(_array(item.type.dtypes, shape) for item in inputs), **values) for shape in _SHAPES]
    else:
        from .strategies import examples

        samples = [Sample(op, *one.inputs, **one.attributes | dict(attributes)) for one in examples(op)]
    refusals = []
    for sample in samples:
        case = Case(sample)
        try:
            with quiet():
                # Not validated: a check reports what is wrong with the outputs.
                case.function(*copies(case.arrays), **case.attributes)
        except (Exception, SystemExit) as error:
            refusals.append(error)
        else:
            sample.generated = True
            return sample
    call = ", ".join([op.__name__, *(f"*{item.name}" if item.variadic else item.name for item in signature.inputs)])
    raise InputError(
        f"{signature.qualified_name} takes none of the inputs that are generated from its signature, and raises "
        f"{format_error(refusals[0])} for {samples[0]!r}; pass inputs of your own: check({call}); or register "
        f"a strategy for samples: @{op.__name__}.register_samples"
    ) from refusals[0]


def _array(dtypes: Sequence[DType], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    dtype = np.dtype(np.float32) if np.dtype(np.float32) in dtypes else dtypes[0]
    numbers = (np.arange(math.prod(shape)) * 7 % 11).reshape(shape)
    if dtype.kind in "iuO":
        return cast(numbers, dtype)
    return cast(numbers % 3 if dtype.kind == "b" else (numbers - 3) / 4, dtype)


def _attribute(attribute: Attribute) -> Any:
    if attribute.choices:
        return attribute.choices[0]
    values: dict[AttributeKind, Any] = {
        AttributeKind.INT: 1,
        AttributeKind.FLOAT: 0.5,
        AttributeKind.STRING: "alpha",
        AttributeKind.TENSOR: np.arange(3, dtype=np.float32),
    }
    value = values[attribute.kind.element]
    return [value] if attribute.is_list else value


def _check_declared(op: AnyOp) -> None:
    """Raise an InputError if another op has replaced this one: sessions would run that op instead."""
    current = op_versions(op.domain, op.name).get(op.version) or adopted_ops().get((op.domain, op.name))
    if current is not op:
        now = f"was replaced by the op at {current.location}" if isinstance(current, Op) else "is no longer declared"
        raise InputError(f"{op.signature}, declared at {op.location}, {now}; pass an op that is declared")


def _wanted(checks: str | Collection[str]) -> set[str]:
    wanted: set[str] = set()
    for pattern in (checks,) if isinstance(checks, str) else checks:
        found = fnmatch.filter(CHECKS, pattern)
        if not found:
            raise InputError(f"there is no check {pattern!r}; there are: {', '.join(CHECKS)}")
        wanted.update(found)
    if not wanted:
        raise InputError(f"no check is requested; there are: {', '.join(CHECKS)}")
    return wanted


def _run(case: Case, wanted: Collection[str]) -> dict[str, CheckResult]:
    """Run checks, and before each of them those that it needs; return the results in the order of `CHECKS`."""
    results: dict[str, CheckResult] = {}

    @functools.cache
    def failed(name: str) -> str:
        """Run a check; return its name if it failed, or that of a failed check that it needs, or an empty string."""
        check = _load(CHECKS[name])
        needed = next(filter(None, map(failed, check.needs)), "")
        results[name] = CheckResult(name, "not run", f"{needed} failed") if needed else _result(name, check, case)
        return name if results[name].status == "failed" else needed

    requested = [name for name in CHECKS if name in wanted]
    for name in track(requested, f"checking {case.signature.qualified_name}", named=True):
        failed(name)
    return {name: results[name] for name in CHECKS if name in results}


def _load(check: Check | EntryPoint) -> Check:
    if isinstance(check, Check):
        return check
    try:
        with where_available():
            loaded: Check = check.load()
        return loaded
    except (NotRun, ImportError) as error:
        reason = error

    def run(case: Case) -> None:
        raise reason

    return Check(run, ())


def _result(name: str, check: Check, case: Case) -> CheckResult:
    try:
        return CheckResult(name, "passed", check.run(case) or "")
    except MissingDependencyError:
        raise  # the kernel needs it
    except NotRun as reason:
        return CheckResult(name, "not run", str(reason))
    except (Exception, SystemExit) as error:  # a kernel may call sys.exit()
        text = str(error) if isinstance(error, AssertionError) else format_error(error)
        hide_own_frames(error)
        return CheckResult(name, "failed", text, error)
