"""The check of samples that hypothesis generates."""

from __future__ import annotations

from ..errors import MissingDependencyError
from ._case import NO_HYPOTHESIS, Case, NotRun, quiet, spell_error
from ._engines import Engine, make_session, why_not
from ._sample import Sample


def generated(case: Case) -> str:
    """Check that sessions return what the plain call returns for generated inputs and attributes."""
    if not case.generate:
        raise NotRun("no generated inputs are asked for; generate=100 is a hundred of them")
    try:
        from hypothesis import HealthCheck, Phase, given, settings
    except ImportError as error:
        raise MissingDependencyError(NO_HYPOTHESIS) from error
    from .strategies import samples

    failing: list[Sample] = []
    refusals: list[Exception] = []
    tried = 0

    @settings(
        max_examples=case.generate,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(samples(case.op))
    def validate(sample: Sample) -> None:
        nonlocal tried
        tried += 1
        failing[:] = [sample]
        if (refusal := _refusal(case, sample)) is not None:
            refusals.append(refusal)

    try:
        validate()
    except Exception as error:  # whatever the kernel or a comparison raised
        raise AssertionError(f"for {failing[0]}: {spell_error(error)}") from error
    if len(refusals) == tried:
        raise NotRun(
            f"the kernel refuses all {tried} samples that are made up, the last one by {spell_error(refusals[-1])}"
        )
    return f"{tried} samples, of which the kernel refuses {len(refusals)}"


def _refusal(case: Case, sample: Sample) -> Exception | None:
    """Return the exception with which the kernel rejects a sample; None if a session agrees with the plain call."""
    other = Case(sample, rtol=case.rtol, atol=case.atol)
    made = other.vary("made up", other.arrays)
    if made.outputs is None:
        return made.refusal
    other.validate_shapes(made)
    if made.outputs:
        engine: Engine = "reference" if why_not("native", other) else "native"
        with quiet():
            session = make_session(sample.with_expected(*made.outputs).model(), engine)
            actual = session.run(None, sample.feed)
        other.compare(actual, made.outputs, f"in a session of the {engine} engine")
    return None
