"""Server that runs models in a process that cannot import torch: a script, run by path so that no package is imported.

It reads ``(model, feed)`` pickles from standard input, and answers each with a list of arrays, or with an error
message as a str.
"""

import os
import pickle
import sys
from typing import Any

import pyops


def main() -> None:
    """Answer requests until the input ends."""
    sys.modules["torch"] = None  # type: ignore[assignment] # makes an import fail
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Libraries may print to standard output.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            model, feed = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: list[Any] | str = pyops.InferenceSession(model).run(None, feed)
        except Exception as error:  # any error is sent as the answer
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
