"""Runs models in a process that cannot import torch: a script, read from its path so that no package is imported.

It takes ``(model, feed)`` from its standard input, one pickle after the other, and answers each with a list of arrays
or with what went wrong, as a str.
"""

import os
import pickle
import sys
from typing import Any

import pyops


def main() -> None:
    """Answer until the input ends."""
    sys.modules["torch"] = None  # type: ignore[assignment] # this is how an import is made to fail
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What libraries print is no answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            model, feed = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: list[Any] | str = pyops.InferenceSession(model).run(None, feed)
        except Exception as error:  # is the answer, whatever it is
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
