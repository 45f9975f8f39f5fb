"""The interpreter ends while sessions are alive."""

import pytest

from tests.helpers.scripts import run_new_script

pytestmark = pytest.mark.usefixtures("engine_of_scripts")

DECLARE = """
        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            return x + 1

        session = pyops.InferenceSession(chain("hazards::Op"))
        plain_options = pyops.register_custom_ops(onnxruntime.SessionOptions())
        plain = onnxruntime.InferenceSession(chain("hazards::Op").SerializeToString(), plain_options)
        attempt(session.run, None, {"x": x})
        attempt(plain.run, None, {"x": x})
"""
ONE = "[[1.0, 2.0, 3.0]]"

ENDINGS = {
    "end-of-script": ("", f"{ONE}\n{ONE}", 0),
    "sys-exit": ("sys.exit(5)", f"{ONE}\n{ONE}", 5),
    "unhandled-exception": ('raise LookupError("the end")', f"{ONE}\n{ONE}", 1),
    "unhandled-exception-of-a-kernel": (
        """
        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            raise LookupError("the end")

        session.run(None, {"x": x})
        """,
        f"{ONE}\n{ONE}",
        1,
    ),
    "a-run-in-atexit": (
        """
        import atexit
        atexit.register(lambda: attempt(session.run, None, {"x": x}))
        """,
        f"{ONE}\n{ONE}\n{ONE}",
        0,
    ),
    "a-session-made-in-a-thread": (
        """
        def work():
            made.append(pyops.InferenceSession(chain("hazards::Op")))
            attempt(made[0].run, None, {"x": x})

        made = []
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """,
        f"{ONE}\n{ONE}\n{ONE}",
        0,
    ),
    "a-thread-that-runs-on-after-the-main-one": (
        """
        def work():
            threading.main_thread().join()
            attempt(session.run, None, {"x": x})

        threading.Thread(target=work).start()
        """,
        f"{ONE}\n{ONE}\n{ONE}",
        0,
    ),
    "a-daemon-thread-inside-a-kernel": (
        """
        inside = threading.Event()

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            inside.set()
            threading.Event().wait()

        threading.Thread(target=session.run, args=(None, {"x": x}), daemon=True).start()
        inside.wait()
        """,
        f"{ONE}\n{ONE}",
        0,
    ),
    "a-cycle-of-session-and-kernel": (
        """
        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            return op.held and x + 1

        op.held = session
        attempt(session.run, None, {"x": x})
        """,
        f"{ONE}\n{ONE}\n{ONE}",
        0,
    ),
}


@pytest.mark.parametrize(("ending", "printed", "code"), ENDINGS.values(), ids=ENDINGS.keys())
def test_the_process_ends_as_it_should(ending: str, printed: str, code: int) -> None:
    errors = run_new_script((DECLARE, ending), printed, code)
    assert ("the end" in errors) == (code == 1)
    assert "Fatal" not in errors
