"""The pytest plug-in, in test suites of its users; each runs in its own process."""

from __future__ import annotations

import pytest

from tests.helpers.scripts import run_plain_script

LIBRARY = """
    import numpy as np
    import pyops
    from numpy.typing import NDArray

    F32 = NDArray[np.float32]
    X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)

    @pyops.onnx_op("plugin::Double")
    def double(x: F32, *, times: int = 2) -> F32:
        return x * np.float32(times)
"""

OF_SAMPLES = """
    import numpy as np
    import pyops
    import pytest
    from library import X, double
    from pyops.testing import Outputs, Sample

    SAMPLES = [
        Sample(double, X),
        Sample(double, X, times=3).with_id("three"),
        Sample(double, X[0]).with_expected(X[0] * 2),
    ]

    @pytest.mark.parametrize("sample", SAMPLES)
    def test_in_a_session(sample, pyops_session):
        session = pyops_session(sample)
        assert isinstance(session, pyops.InferenceSession)
        assert session.run(None, sample.feed) == sample.expected()

    def test_of_a_model(pyops_session):
        session = pyops_session(SAMPLES[0].model(), engine="native")
        assert session.get_inputs()[0].shape == [2, 3]

    WRONG = np.array([[2, 4, 6], [8, 11, 12]], np.float32)

    def test_that_fails(pyops_session):
        assert pyops_session(SAMPLES[0]).run(None, SAMPLES[0].feed) == Outputs([WRONG])

    def test_that_fails_the_other_way_round():
        assert Outputs([WRONG]) == [np.where(WRONG == 8, np.float32(7), WRONG)]

    def test_that_fails_of_the_same():
        assert [WRONG] != Outputs([WRONG])
"""

OF_ISOLATION = """
    import pyops
    import pytest
    from library import F32, X, double
    from pyops.testing import Outputs, Sample

    @pytest.fixture(scope="module")
    def halve():
        @pyops.onnx_op("plugin::Halve")
        def halve(x: F32) -> F32:
            return x / 2
        return halve

    @pytest.fixture
    def third():
        @pyops.onnx_op("plugin::Third")
        def third(x: F32) -> F32:
            return x / 3
        return third

    def names():
        return [op.name for op in pyops.list_ops() if op.domain == "plugin"]

    def test_that_declares(third, halve):
        @pyops.onnx_op("plugin::Passing")
        def passing(x: F32) -> F32:
            return x

        def changed(x: F32, *, times: int = 2) -> F32:
            return x

        with pytest.warns(pyops.errors.RedeclarationWarning, match="previously double of module library"):
            pyops.onnx_op("plugin::Double")(changed)

        @double.register_shape_inference
        def _(x, *, times=2):
            return x

        assert double(X[0, :1]).tolist() == [1]
        assert names() == ["Double", "Halve", "Passing", "Third"]

    def test_after_it():
        assert names() == ["Double", "Halve"]
        assert double(X[0, :1]).tolist() == [1 * 2]
        assert double.shape_function is None
        assert double.__name__ == "double"

    def test_that_changes_a_signature():
        def changed(x: F32) -> F32:
            return x

        with pytest.warns(pyops.errors.RedeclarationWarning, match="previously double of module library"):
            assert pyops.onnx_op("plugin::Double")(changed) is not double

    def test_after_that(pyops_session):
        sample = Sample(double, X, times=5)
        assert pyops_session(sample).run(None, sample.feed) == Outputs([X * 5])

    def test_that_imports():
        import late_library

        assert "Late" in names()

    def test_after_that_import(pyops_session):
        import late_library

        sample = Sample(late_library.late, X)
        assert pyops_session(sample).run(None, sample.feed) == sample.expected()
"""

OF_FAULTS = """
    import numpy as np
    import pyops
    import pytest
    from library import F32, X, double
    from pyops.testing import Sample

    @pyops.onnx_op("plugin::Square")
    def square(x: F32) -> F32:
        return x * x.astype(np.float64)

    @pyops.onnx_op("plugin::Pick", version=2)
    def pick(x: F32, *, index: int) -> F32:
        if x.shape != (7, 7):
            raise ValueError("only boards are taken")
        return x[index]

    @pyops.onnx_op("plugin::Transposed")
    def transposed(x: F32) -> F32:
        if x.shape != (3, 5):
            raise ValueError("only of shape (3, 5)")
        return x.T

    @transposed.register_samples
    def _():
        from pyops.testing import strategies

        return strategies.samples(transposed, shapes=(3, 5))

    @double.register_samples
    def _():
        from pyops.testing import strategies

        return strategies.samples(double, shapes=(2,))

    @pyops.onnx_op("plugin::Options")
    def options(x: F32, *, checks: str = "", generate: int = 1) -> F32:
        return x * np.float32(generate)

    @pytest.mark.parametrize("sample", [Sample(double, X).with_id("doubled"), Sample(double, X[0], times=1)])
    def test_with_samples(sample):
        pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> pytest.Pytester:
    """Where warnings are errors, as in ours; torch takes seconds to import."""
    pytester.makeini("[pytest]\naddopts = -v -W error -p no:cacheprovider\n")
    pytester.makepyfile(library=LIBRARY)
    if not pytestconfig.pluginmanager.hasplugin("pyops"):  # an environment that has the checkout on its path only
        pytester.plugins.append("pyops._pytest_plugin")
    pytester.makeconftest("import sys\nsys.modules['torch'] = None")
    return pytester


def test_it_loads_nothing_that_its_users_do_not():
    heavy = ("numpy", "onnx", "onnxruntime", "torch", "hypothesis", "pyops._core.ops.op_registry")
    run_plain_script(
        f"import sys\nimport pyops._pytest_plugin\nprint([name for name in {heavy} if name in sys.modules])", "[]"
    )


def test_sessions_samples_assertions_and_isolation(suite: pytest.Pytester):
    suite.makepyfile(
        test_samples=OF_SAMPLES,
        test_isolation=OF_ISOLATION,
        late_library=LIBRARY.replace("Double", "Late").replace("double", "late"),
        # Before all others: nobody has imported anything of pyops.
        test_alone="""
            import sys

            def test_that_has_nothing_to_do_with_it():
                assert "pyops._core.ops.op_registry" not in sys.modules

            def test_that_fails():
                assert 1 == 2
        """,
    )
    alone = suite.runpytest_subprocess("test_alone.py", "-p", "no:hypothesispytest")
    alone.assert_outcomes(passed=1, failed=1)
    alone.stdout.fnmatch_lines(["E*assert 1 == 2"])
    result = suite.runpytest_subprocess("test_samples.py", "test_isolation.py")
    result.assert_outcomes(passed=10, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*test_in_a_session[[]Double(float32[[]2, 3[]])[]] PASSED*",
            "*test_in_a_session[[]three[]] PASSED*",
            "*test_in_a_session[[]Double(float32[[]3[]])[]] PASSED*",
            "E*differs in 1 of 6 elements, first at [[]1, 1[]]: 10.0 where 11.0 is expected*",
            "E*differs in 1 of 6 elements, first at [[]1, 0[]]: 7.0 where 8.0 is expected*",
            "E*assert [[]array(*)[]] != *",
        ]
    )


def test_an_option_checks_every_declared_op(suite: pytest.Pytester):
    suite.makepyfile(test_faults=OF_FAULTS)
    result = suite.runpytest_subprocess("--pyops-check", "-rs", "-k", "not test_with_samples")
    result.assert_outcomes(passed=5, failed=1, skipped=1, deselected=2)
    result.stdout.fnmatch_lines(
        [
            "*plugin::Double[[]doubled[]] PASSED*",
            "*plugin::Double[[]Double(float32[[]3[]], times=1)[]] PASSED*",
            "*plugin::Double PASSED*",
            "*plugin::Options PASSED*",
            "*plugin::Pick-2 SKIPPED*",
            "*plugin::Square FAILED*",
            "*plugin::Transposed PASSED*",
            "*outputs: OutputError: plugin::Square: 'output' is declared float32 and the kernel returned float64*",
            "*others*not run*outputs failed*",
            "SKIPPED*only boards are taken*pass inputs of your own*",
        ]
    )
    result.stdout.no_fnmatch_line("*kernel_checks.py*")
