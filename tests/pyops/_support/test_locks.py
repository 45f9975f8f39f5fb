"""Locks that no exception of a signal's handler leaves acquired."""

import contextlib
import threading

import pytest

from pyops._support.locks import TakenError, TryLock
from tests.helpers.scripts import run_plain_script, run_script
from tests.helpers.systems import needs_signals


@needs_signals
@pytest.mark.parametrize("name", ["RLock", "TryLock"])
def test_no_exception_of_a_handler_in_a_storm_leaves_a_lock_acquired(name: str) -> None:
    script = f"""
import signal, sys, threading
from pyops._support.locks import {name}

class Interrupt(Exception):
    pass

def interrupt(number, frame):
    if is_armed:
        raise Interrupt

def send():
    while not is_over.wait(0.0003):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

def enter():
    with lock:
        entered.append(True)

lock, is_armed, is_over, entered = {name}(), False, threading.Event(), []
signal.signal(signal.SIGUSR1, interrupt)
sys.setswitchinterval(1e-4)
sender = threading.Thread(target=send)
sender.start()
for _ in range(1500):
    try:
        is_armed = True
        while True:
            with lock:
                pass
    except Interrupt:
        is_armed = False
is_over.set()
sender.join()
other = threading.Thread(target=enter, daemon=True)
other.start()
other.join(10)
print(entered)
"""
    run_plain_script(script, "[True]")


@needs_signals
def test_a_handler_that_raises_once_a_lock_was_waited_for_does_not_keep_it_from_other_threads() -> None:
    script = """
        import time

        class Interrupt(Exception):
            pass

        def interrupt(number, frame):
            raise Interrupt

        def warn(*warning):  # called while the schemas are registered
            if threading.current_thread() is first:
                is_registering.set()
                time.sleep(0.2)
                # The signal comes in this thread, so that the main one waits on, and calls the handler thereafter.
                signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

        @onnx_op("hazards::Op")
        def op(x: F32) -> F32:
            return x

        onnx.defs.register_schema(onnx.defs.OpSchema("Op", "hazards", 1))
        warnings.simplefilter("always")
        warnings.showwarning = warn
        is_registering, first = threading.Event(), threading.Thread(target=pyops.register_schemas)
        signal.signal(signal.SIGUSR1, interrupt)
        first.start()
        is_registering.wait(10)
        attempt(pyops.register_schemas)
        first.join()
        other = threading.Thread(target=lambda: print(bool(pyops.register_schemas())), daemon=True)
        other.start()
        other.join(10)
    """
    run_script(script, "Interrupt\nTrue")


def test_a_lock_that_is_not_waited_for_is_refused_to_every_thread_and_free_after_the_block() -> None:
    lock, refused = TryLock(), []

    def enter() -> None:
        try:
            with lock:
                pass
        except TakenError as error:
            refused.append(error)

    with contextlib.suppress(ValueError), lock:
        enter()
        other = threading.Thread(target=enter)
        other.start()
        other.join()
        raise ValueError
    enter()
    assert len(refused) == 2
