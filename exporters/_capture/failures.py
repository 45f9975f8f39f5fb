"""What stopped a capture: the line of the model's code, the cause, and what to type."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from .._torch_private.tracing import is_capture_error
from ..errors import ExportError
from .calls import ENTRIES, NOWHERE, TRACE, Place, innermost, spell_place

_LONGEST = 300

_AUTO = 'capture="auto" fixes what depends on the arguments as in the example, and lists it in program.decisions'
_HINTS = (
    (
        "torch/distributions/",
        "leave out validate_args=True, or pass validate_args=False: a distribution validates by a condition on values",
    ),
    (
        "nsupported input type",
        "register the class as a tree: torch.utils._pytree.register_pytree_node(cls, flatten, unflatten), or "
        "torch.export.register_dataclass(cls)",
    ),
    (
        "nsupported output type",
        "return tensors, or register the class as a tree: torch.utils._pytree.register_pytree_node(cls, flatten, "
        "unflatten)",
    ),
)


def is_capture_failure(error: BaseException) -> bool:
    """Return whether an export failed because the model could not be captured."""
    return any(map(is_capture_error, chain(error)))


def in_trace(error: BaseException) -> bool:
    """Return whether an exception was raised while a model was traced."""
    return any(frame.filename == TRACE for item in chain(error) for frame in traceback.extract_tb(item.__traceback__))


def capture_failure(error: BaseException, capture: str) -> ExportError:
    """Return an error of at most ten lines that says where a capture stopped, why, and what to type."""
    errors = list(chain(error))
    root = next((item for item in reversed(errors) if item.__traceback__ and not is_capture_error(item)), errors[-1])
    place = _place(errors)
    where = f" at {spell_place(place)}" if place[0] else ""
    explained = next((item for item in errors if isinstance(item, ExportError)), None)
    cause = str(explained) if explained else f"{type(root).__name__}: {_first_lines(str(root))}"
    text = "\n".join(f"{item.filename} {item.name}" for each in errors for item in frames(each)) + str(root)
    hints = [hint for mark, hint in _HINTS if mark in text]
    if capture == "export":
        hints.append(_AUTO)
    verb = "torch.export cannot capture the model" if capture == "export" else "the model cannot be traced"
    return ExportError("\n".join([f"{verb}{where}", f"  {cause}", *(f"  {hint}" for hint in hints)][:10]))


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes, the outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the lines of an exception that are within the capture, the outermost first."""
    found = list(traceback.extract_tb(error.__traceback__, limit=None))
    entries = [index for index, frame in enumerate(found) if frame.filename in ENTRIES]
    return found[entries[-1] + 1 :] if entries else found


def _place(errors: list[BaseException]) -> Place:
    """Return the innermost line of the model's code that the exceptions went through."""
    for error in reversed(errors):
        place = innermost((frame.filename, frame.lineno or 0) for frame in reversed(frames(error)))
        if place[0]:
            return place
    return NOWHERE


def _first_lines(message: str) -> str:
    """Return the beginning of a message, without the graphs and stacks that torch adds."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return (lines[0] if lines else "")[:_LONGEST]
