"""Which engine hosts the ops, and the message if one does not work."""

import onnxruntime
import pytest

import pyops
from pyops.errors import EngineError
from tests.helpers.models import chain
from tests.helpers.scripts import PREAMBLE, run_plain_script, run_script
from tests.helpers.systems import needs_posix

pytest.importorskip("onnxruntime_extensions")

# Other modules of the tests declare ops that onnxruntime-extensions does not support.
pytestmark = pytest.mark.filterwarnings("ignore:skipped ops")


def test_an_engine_that_does_not_exist_is_refused():
    with pytest.raises(EngineError, match="engine is 'numpy'; expected one of 'auto', 'native', 'extensions'"):
        pyops.InferenceSession(chain("Neg"), engine="numpy")
    with pytest.raises(EngineError, match="expected one of"):
        pyops.register_custom_ops(onnxruntime.SessionOptions(), engine="numpy")
    with pytest.raises(EngineError, match=r"expected an onnxruntime\.SessionOptions, got NoneType"):
        pyops.register_custom_ops(None, engine="extensions")


SPARC = """
import platform
platform.machine = lambda: "sparc"
"""
FALLBACK = """
import sys
sys.modules["torch"] = None

@onnx_op("ext::AddOne")
def add_one(x: F32) -> F32:
    if x[0] < 0:
        raise ValueError("negative")
    return x + 1

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    session = pyops.InferenceSession(chain("ext::AddOne"))
    attempt(session.run, None, {"x": x})
    attempt(pyops.InferenceSession(chain("ext::AddOne")).run, None, {"x": x - 1})
    options = pyops.register_custom_ops(onnxruntime.SessionOptions())
    attempt(onnxruntime.InferenceSession(chain("ext::AddOne").SerializeToString(), options).run, None, {"x": x})
print(len(caught), "extensions engine" in str(caught[0].message), "sparc" in str(caught[0].message))
try:
    pyops.InferenceSession(chain("ext::AddOne"), engine="native")
except pyops.errors.EngineError as error:
    problem = error
    print(str(error).endswith("-sparc"))
print(pyops.testing.check(add_one, x, checks="engine_native")["engine_native"].reason == str(problem))
"""


def test_where_native_does_not_work_it_takes_over_and_says_so_once():
    run_plain_script(
        SPARC + PREAMBLE + FALLBACK,
        """
        [[1.0, 2.0, 3.0]]
        ValueError negative
        [[1.0, 2.0, 3.0]]
        1 True True
        True
        True
        """,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "onnxruntime.__version__ = '1.26.0'",
            'pyops needs onnxruntime 1.27 or later; 1.26.0 is installed: pip install "onnxruntime',
        ),
        # Its bindings are built otherwise, too.
        (
            "onnxruntime.__version__ = '1.22.1'; "
            "onnxruntime.capi.onnxruntime_pybind11_state.get_available_providers = len",
            "pyops needs onnxruntime 1.27 or later; 1.22.1 is installed",
        ),
        pytest.param(
            "onnxruntime.__version__ = '1.999.0'",
            "libonnxruntime.so.1.999.0 is not the C library of ONNX Runtime 1.999",
            marks=needs_posix,  # the name of Windows' library has no version
        ),
        ("pyops._core.runtime.native.c_api.API_VERSION = 999", "does not offer version 999 of its C API"),
    ],
    ids=["older", "much-older", "without-its-library", "without-the-interface"],
)
def test_a_release_that_native_does_not_work_with_is_said(change: str, message: str) -> None:
    script = f"""
        import pyops._core.runtime.native.c_api
        {change}
        try:
            pyops.InferenceSession(chain("Neg"), engine="native")
        except pyops.errors.EngineError as error:
            print({message!r} in str(error))
    """
    run_script(script, "True")


def test_without_onnxruntime_extensions_the_error_says_what_to_install():
    script = """
sys.modules["onnxruntime_extensions"] = None

@onnx_op("ext::AddOne")
def add_one(x: F32) -> F32:
    return x + 1

attempt(lambda: pyops.InferenceSession(chain("ext::AddOne"), engine="extensions"))
attempt(pyops.get_library_path)
attempt(pyops.InferenceSession(chain("ext::AddOne")).run, None, {"x": x})
print(pyops.testing.check(add_one, x, checks="engine_extensions")["engine_extensions"].reason)
"""
    reason = (
        "the extensions engine needs onnxruntime-extensions, which cannot be imported (import of "
        "onnxruntime_extensions halted; None in sys.modules); pip install onnxruntime-extensions"
    )
    message = f"MissingDependencyError {reason}"
    run_plain_script(PREAMBLE + script, f"{message}\n{message}\n[[1.0, 2.0, 3.0]]\n{reason}")
