"""Inputs that a kernel keeps, read after the owner of their memory is gone."""

import pytest

from tests.helpers.scripts import run_script

# Functions that run sessions in which the op keeps something, and have nothing of them left when they return.
MEMORY = """
    def feed(options):
        session = pyops.InferenceSession(chain("hazards::Op"), options)
        feed = {"x": numbers()}
        keep(session.run, None, feed)
        feed["x"] = numbers()

    def feed_of_a_plain_session(options):
        options.log_severity_level = 4
        pyops.register_custom_ops(options)
        session = onnxruntime.InferenceSession(chain("hazards::Op").SerializeToString(), options)
        keep(session.run, None, {"x": numbers()})

    def feed_in_a_thread(options):
        session = pyops.InferenceSession(chain("hazards::Op"), options)
        thread = threading.Thread(target=keep, args=(session.run, None, {"x": numbers()}))
        thread.start()
        thread.join()

    def feed_and_session_without_names(options):
        keep(lambda: pyops.InferenceSession(chain("hazards::Op")).run(None, {"x": numbers()}))

    def feed_with_gaps(options):
        keep(pyops.InferenceSession(chain("hazards::Op"), options).run, None, {"x": numbers()[::2]})

    def feed_of_a_list(options):
        keep(pyops.InferenceSession(chain("hazards::Op"), options).run, None, {"x": numbers().tolist()})

    def feed_of_an_ort_value(options):
        value = onnxruntime.OrtValue.ortvalue_from_numpy(numbers())
        session = pyops.InferenceSession(chain("hazards::Op"), options)
        keep(session.run_with_ort_values, None, {"x": value})

    def feed_by_io_binding(options):
        session = pyops.InferenceSession(chain("hazards::Op"), options)
        binding = session.io_binding()
        binding.bind_cpu_input("x", numbers())
        binding.bind_output("y")
        keep(session.run_with_iobinding, binding)
        binding.bind_cpu_input("x", numbers())

    def feed_in_parallel_execution(options):
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        keep(pyops.InferenceSession(chain("hazards::Op"), options).run, None, {"x": numbers()})

    def feed_of_an_asynchronous_run(options):
        session = pyops.InferenceSession(chain("hazards::Op"), options)
        done = threading.Event()
        keep(session.run_async, None, {"x": numbers()}, lambda *answer: done.set(), None)
        done.wait()

    def result_between_nodes(options):
        keep(pyops.InferenceSession(chain("Neg", "hazards::Op", "Neg"), options).run, None, {"x": numbers()})

    def result_in_a_planned_block(options):
        session = pyops.InferenceSession(chain("Neg", "hazards::Op", "Neg"), options)
        keeping.clear()
        session.run(None, {"x": numbers()})
        keep(session.run, None, {"x": numbers()})

    def result_without_an_arena(options):
        options.enable_cpu_mem_arena = False
        result_between_nodes(options)

    def result_in_a_planned_block_without_an_arena(options):
        options.enable_cpu_mem_arena = False
        result_in_a_planned_block(options)

    def result_in_a_session_made_anew(options):
        session = pyops.InferenceSession(chain("Neg", "hazards::Op", "Neg"), options)
        keep(session.run, None, {"x": numbers()})
        session.set_providers(["CPUExecutionProvider"])

    def constant(options):
        node = onnx.helper.make_node("Op", ["c"], ["t"], domain="hazards")
        model = make_model(
            [node, onnx.helper.make_node("Add", ["t", "x"], ["y"])],
            [("x", np.float32, None)],
            [("y", np.float32, None)],
            {"hazards": 1},
            {"c": numbers()},
        )
        keep(pyops.InferenceSession(model, options).run, None, {"x": numbers()})
"""

SCRIPT = """
    import ctypes

    if hasattr(os, 'fork'):  # M_MMAP_THRESHOLD: what is freed is unmapped, and reading it ends the process
        ctypes.CDLL(None).mallopt(-3, 2**16)
    warnings.simplefilter("ignore", pyops.errors.BorrowedArrayWarning)
    raising, keeping, kept = [], [], []

    @onnx_op("hazards::Op")
    def op(x: F32) -> F32:
        if keeping:
            keeping.clear()
            kept.extend([x, x[1:], x.reshape(-1, 2)[::2], np.frombuffer(x, np.float32), memoryview(x)])
            if raising:
                raise LookupError("after keeping")
        return x + 0

    def numbers():
        return np.arange(1_000_000, dtype=np.float32)

    def keep(run, *args):
        keeping.append(True)
        try:
            run(*args)
        except Exception as error:
            assert "after keeping" in str(error), error

    for _ in range(2):
        {memory}(onnxruntime.SessionOptions())
        gc.collect()
        # Read at once and without an allocation: a new array could be where the freed one was.
        print([np.asarray(item).max().dtype.name for item in kept])
        raising.append(True)
"""
NAMES = [line.split("(")[0].removeprefix("    def ") for line in MEMORY.splitlines() if line.startswith("    def ")]


@pytest.mark.parametrize("memory", NAMES)
def test_what_a_kernel_keeps_can_be_read_when_whoever_had_its_memory_is_gone(memory: str) -> None:
    run_script((MEMORY, SCRIPT.format(memory=memory)), f"{['float32'] * 5}\n{['float32'] * 10}")
