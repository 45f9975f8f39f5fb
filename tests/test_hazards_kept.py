"""What a kernel keeps of its input, read when ONNX Runtime has long freed the memory."""

import pytest

from tests.scripts import run_script

# How a kernel keeps its input in `kept`, and the first three values read from it later.
KEPT = {
    "itself": ("kept.append(x)", "kept[0][:3].tolist()"),
    "a-view": ("kept.append(x[1:])", "[-0.0, *kept[0][:2].tolist()]"),
    "a-view-in-an-object-array": (
        "kept.append(np.array([None], object)); kept[-1][0] = x[:]",
        "kept[0][0][:3].tolist()",
    ),
    # A memoryview's memory cannot be exchanged: it is released, and says so.
    "a-memoryview": ("kept.append(memoryview(x))", "released(kept[0])"),
    "an-array-on-its-buffer": ("kept.append(np.frombuffer(x, np.float32))", "kept[0][:3].tolist()"),
    "a-view-in-an-object-with-slots": ("kept.append(Slots(x[:]))", "kept[0].array[:3].tolist()"),
    "a-view-in-a-suspended-generator": (
        "kept.append(later(x[:])); next(kept[-1])",
        "next(kept[0])[:3].tolist()",
    ),
    "a-view-in-another-thread-s-local": (
        "kept.append(Holder(x[:]))",
        "kept[0].result()[:3].tolist()",
    ),
    "a-view-in-another-module": (
        "kept.append(None); sys.modules['attic'].views.append(x[:])",
        "attic.views[0][:3].tolist()",
    ),
}

SCRIPT = """
    class Slots:
        __slots__ = ("array",)

        def __init__(self, array):
            self.array = array

    def later(array):
        yield None
        yield array

    class Holder:
        # A thread that has an array in a local variable, and nowhere else.

        def __init__(self, array):
            self.arrays, self.taken, self.asked, self.answers = [array], threading.Event(), threading.Event(), []
            self.thread = threading.Thread(target=self.hold, daemon=True)
            self.thread.start()
            self.taken.wait()

        def hold(self):
            array = self.arrays.pop()
            self.taken.set()
            self.asked.wait()
            self.answers.append(array.copy())

        def result(self):
            self.asked.set()
            self.thread.join()
            return self.answers[0]

    attic = type(sys)("attic")
    attic.views = []
    sys.modules["attic"] = attic

    def released(view):
        try:
            view[0]
        except ValueError:
            return [-0.0, -1.0, -2.0]

    kept = []
    warnings.simplefilter("ignore", pyops.errors.KeptArrayWarning)

    @onnx_op("hazards::Op")
    def op(x: F32) -> F32:
        if not kept:
            {keep}
            {then}
        return x + 0

    def run():
        session = pyops.InferenceSession(chain("Neg", "hazards::Op", "Neg"))
        big = np.arange(1_000_000, dtype=np.float32)
        try:
            session.run(None, {{"x": big}})
        except LookupError:
            pass
        session.run(None, {{"x": big * 5 + 3}})

    run()
    pyops.failures._last = None
    gc.collect()
    filler = [np.full(1_000_000, 7, np.float32) for _ in range(10)]
    values = {read}
    print(values)
"""


@pytest.mark.parametrize("then", ["pass", 'raise LookupError("after keeping")'], ids=["returns", "raises"])
@pytest.mark.parametrize(("keep", "read"), KEPT.values(), ids=KEPT.keys())
def test_what_a_kernel_keeps_has_its_values_after_the_session(keep: str, read: str, then: str) -> None:
    expected = "[-0.0, -1.0, -2.0]"
    run_script(SCRIPT.format(keep=keep, read=read, then=then), expected)
