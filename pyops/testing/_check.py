"""The table of all checks, and `check`, which runs them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from .._ops import adoption, registry
from .._ops.op import AnyOp, Op
from ..errors import InputError, MissingDependencyError
from . import (
    _attribute_checks,
    _engine_checks,
    _examples,
    _generated_checks,
    _kernel_checks,
    _shape_checks,
    _thread_checks,
    _torch_checks,
)
from ._case import Case, NotRun, hide_own_frames, spell_error
from ._report import CheckError, CheckReport, CheckResult
from ._sample import Sample


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes
    ----------
    run : callable
        Runs the check and returns a note for the report, or None. It raises `NotRun` where there is nothing to
        check, and any other exception where the check fails.
    needs : tuple of str
        Checks that run first. If one of them fails, this check is not run: it would report the same fault again.
    """

    run: Callable[[Case], str | None]
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name that results and the argument `checks` use."""
        return self.run.__name__

    @property
    def condition(self) -> str:
        """Return the condition for passing: the first line of the docstring without "Check that"."""
        return (self.run.__doc__ or "").splitlines()[0].removeprefix("Check that ")


_PLAIN = ("inputs_unchanged", "outputs")
_VALUES = (*_PLAIN, "repeatable")
_ALL_OF_KERNEL = (*_VALUES, "shape_function", "out_buffers", "non_contiguous")

CHECKS: dict[str, Check] = {
    check.name: check
    for check in (
        Check(_kernel_checks.inputs_unchanged),
        Check(_kernel_checks.outputs, ("inputs_unchanged",)),
        Check(_kernel_checks.repeatable, _PLAIN),
        Check(_kernel_checks.expected, _VALUES),
        Check(_kernel_checks.inputs_released, _PLAIN),
        Check(_kernel_checks.outputs_owned, _PLAIN),
        Check(_kernel_checks.dtypes, _PLAIN),
        Check(_kernel_checks.optional_inputs, _PLAIN),
        Check(_attribute_checks.attribute_defaults, _PLAIN),
        Check(_kernel_checks.non_contiguous, _VALUES),
        Check(_shape_checks.shape_function, _PLAIN),
        Check(_shape_checks.other_sizes, (*_PLAIN, "shape_function")),
        Check(_shape_checks.symbolic_shapes, (*_PLAIN, "shape_function", "other_sizes")),
        Check(_kernel_checks.empty, (*_PLAIN, "shape_function", "other_sizes")),
        Check(_kernel_checks.scalar, (*_PLAIN, "shape_function", "other_sizes")),
        Check(_kernel_checks.out_buffers, _VALUES),
        Check(_kernel_checks.compiled, _VALUES),
        Check(_thread_checks.thread_safe, (*_VALUES, "outputs_owned")),
        Check(_attribute_checks.attributes, _PLAIN),
        Check(_engine_checks.engine_native, (*_ALL_OF_KERNEL, "other_sizes", "empty", "scalar", "attributes")),
        Check(_engine_checks.engine_extensions, (*_ALL_OF_KERNEL, "other_sizes", "empty", "scalar", "attributes")),
        Check(_engine_checks.engine_reference, (*_ALL_OF_KERNEL, "other_sizes", "empty", "scalar", "attributes")),
        Check(_torch_checks.torch_eager, _ALL_OF_KERNEL),
        Check(_torch_checks.torch_fake, (*_ALL_OF_KERNEL, "symbolic_shapes")),
        Check(_torch_checks.torch_opcheck, (*_ALL_OF_KERNEL, "symbolic_shapes", "torch_eager", "torch_fake")),
        Check(_torch_checks.torch_gradients, (*_ALL_OF_KERNEL, "torch_eager")),
        Check(_torch_checks.torch_export, (*_ALL_OF_KERNEL, "engine_native", "torch_eager", "torch_fake")),
        Check(_engine_checks.cuda, _VALUES),
        Check(_generated_checks.generated, (*_ALL_OF_KERNEL, "dtypes", "empty", "scalar", "engine_native")),
    )
}
"""All checks by name, in the order in which they run."""

_OPTIONS = ("checks", "expected", "generate", "rtol", "atol", "raise_exception")


def check(
    op: AnyOp | Sample,
    /,
    *inputs: Any,
    checks: str | Collection[str] = "*",
    expected: Any = None,
    generate: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    raise_exception: bool = True,
    **attributes: Any,
) -> CheckReport:
    """Check an op on one call: its kernel, its shape function, every engine, and its PyTorch operator.

    A check that cannot run (no shape function, torch is not installed, ...) is "not run" in the report, with the
    reason. Some checks derive other inputs from those given (of size 0, without dimensions); a kernel may reject
    these with an exception, which the report notes.

    Parameters
    ----------
    op : Op or Sample
        The op, or a whole call of it. Pass a `Sample` if an attribute of the op has the name of a parameter of
        `check`.
    *inputs : numpy.ndarray or None
        The inputs of the call. If there are none, small arrays and missing required attributes are generated.
    checks : str or collection of str
        Names of checks, or patterns such as ``"engine_*"``; by default all. The checks that these need also run;
        the report lists them only if they fail.
    expected : array_like or tuple, optional
        The expected output, or a tuple of several.
    generate : int
        The number of further calls to generate with hypothesis; each compares a session with the plain call.
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
        The arguments do not fit the op, or a name in `checks` is unknown.
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
    subject = f"{sample!r}{', inputs made up' if sample.generated else ''}"
    wanted = _wanted(checks)
    if generate < 0:
        raise InputError(f"generate is {generate}; expected how many samples to make up, or 0")
    case = Case(sample, generate, rtol, atol)
    results = {result.name: result for result in _run(case, wanted)}
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
            f"{op.signature} has an attribute called like the option {ambiguous[0]!r} of check; pass the call as a "
            f"sample: check(pyops.testing.Sample({op.__name__}, ..., {ambiguous[0]}=...))"
        )
    named = {item.name for item in op.signature.inputs if not item.variadic}
    if inputs or named & set(attributes):
        return Sample(op, *inputs, **attributes)
    return _examples.example(op, attributes)


def _check_declared(op: AnyOp) -> None:
    """Raise an InputError if another op has replaced this one: sessions would run that op instead."""
    current = registry.versions(op.domain, op.name).get(op.version) or adoption.adopted_ops().get((op.domain, op.name))
    if current is not op:
        now = f"declared now, at {current.location}" if isinstance(current, Op) else "declared"
        raise InputError(f"{op.signature}, declared at {op.location}, is not what is {now}; pass the op that is")


def _wanted(checks: str | Collection[str]) -> set[str]:
    wanted: set[str] = set()
    for pattern in (checks,) if isinstance(checks, str) else checks:
        found = fnmatch.filter(CHECKS, pattern)
        if not found:
            raise InputError(f"there is no check {pattern!r}; there are: {', '.join(CHECKS)}")
        wanted.update(found)
    if not wanted:
        raise InputError(f"no check is asked for; there are: {', '.join(CHECKS)}")
    return wanted


def _run(case: Case, wanted: Collection[str]) -> Iterator[CheckResult]:
    needed = set(wanted).union(*(CHECKS[name].needs for name in wanted))
    failed: set[str] = set()
    for name, one in CHECKS.items():
        if name not in needed:
            continue
        missing = [other for other in one.needs if other in failed]
        if missing:
            yield CheckResult(name, "not run", f"{missing[0]} failed")
            continue
        result = _result(name, one, case)
        if result.status == "failed":
            failed.add(name)
        yield result


def _result(name: str, one: Check, case: Case) -> CheckResult:
    try:
        with _torch_checks.unlogged() if name.startswith("torch_") else nullcontext():
            return CheckResult(name, "passed", one.run(case) or "")
    except MissingDependencyError:
        raise  # the caller asked for a check that needs it
    except NotRun as reason:
        return CheckResult(name, "not run", str(reason))
    except (Exception, SystemExit) as error:  # a kernel may call sys.exit()
        text = str(error) if isinstance(error, AssertionError) else spell_error(error)
        hide_own_frames(error)
        return CheckResult(name, "failed", text, error)
