"""What stopped a capture: the line of the model's code, the cause, and the fix."""

from __future__ import annotations

import traceback
from collections.abc import Iterable

from torch.fx import Node

from .._torch.private.onnx_exporter import UncapturedError
from .._torch.private.operators import HigherOrderOperator, OpOverload, qualified_name
from ..errors import CaptureError, ExportError, causes
from .graph_calls import ENTRIES, NOWHERE, TRACE, Place, format_place, innermost, source_line

_LONGEST, _MOST_PLACES = 300, 5

_AUTO = 'capture="auto" specializes such values to the example arguments, and lists them in program.decisions'
_REGISTER = (
    "register the class as a pytree: torch.export.register_dataclass(cls), or "
    "torch.utils._pytree.register_pytree_node(cls, flatten, unflatten)"
)
_SIZES = (
    "the model's code specializes that size: leave the dimension out of dynamic_shapes, or write torch.export.Dim.AUTO "
    "for it, which is dynamic where the model allows it"
)
# The fix, by a part of the message, or of the path of a file that the exception passed through.
_HINTS = {
    "torch/distributions/": "a distribution validates its arguments by their values: pass validate_args=False",
    "nsupported input type": _REGISTER,
    "nsupported output type": _REGISTER,
    "user-specified": _SIZES,
    "Constraints violated": _SIZES,
}
# Parts of messages about a number or values of a tensor that the capture does not know.
_BY_VALUES = (
    "depends on data",
    "SymInt",
    "SymFloat",
    "SymBool",
    "is not supported for tensor subclasses",
)

# Parts of messages about gradients, and about tensors that a capture above autograd does not know.
_LOST = "the capture does not see how the model computes a tensor"
AUTOCAST = "the casts of torch.autocast are recorded below autograd alone"
_BY_GRADIENTS = (
    "does not require grad",
    "fake tensor in the exported program",
    "functorch",
    "'constant'",
    _LOST,
    AUTOCAST,
)


class UnfaithfulError(CaptureError):
    """A captured program does not compute what the model does, or ONNX cannot express it; another capture may."""


def lost(node: Node) -> CaptureError:
    """Return the error for a constant of a recorded graph that the model computes where torch does not record it."""
    line = source_line(next((user for user in node.users if source_line(user)), node))
    return UnfaithfulError(
        f"{_LOST}{f', which this line uses: {line}' if line else ''}\n  compute it by functions of torch, or make what "
        "computes it an operator: exporters.custom_op"
    )


def check_answers(unanswered: Iterable[tuple[BaseException, Place]]) -> None:
    """Raise CaptureError if the model's code has caught an exception that only a capture raises.

    Parameters
    ----------
    unanswered : iterable
        What torch raised where the code asked for values that a capture does not know, and where that was.
    """
    for error, place in unanswered:
        (frame, _), *_ = traceback.walk_tb(error.__traceback__)  # the one that caught it
        if innermost([(frame.f_code.co_filename, frame.f_lineno)])[0]:
            raise UnfaithfulError(
                f"the model's code catches the exception with which torch.export says that it does not know a value, "
                f"so a run would take another branch: {format_place(place)}\n  {_AUTO}"
            )


def inexpressible(node: Node) -> CaptureError:
    """Return the error for a call on numbers that a captured program computes, for which there is no translation."""
    target = node.target
    name = qualified_name(target) if isinstance(target, OpOverload) else getattr(target, "__name__", str(target))
    line = f": {source_line(node)}".rstrip(": ")
    if isinstance(target, HigherOrderOperator):
        return UnfaithfulError(
            f"torch's exporter has no translation for {name}{line}\n  compute it by other functions of torch"
        )
    return UnfaithfulError(f"{name} has no translation for a number that depends on data{line}")


def is_capture_failure(error: BaseException) -> bool:
    """Return whether an export failed because the model could not be captured."""
    return any(isinstance(item, (UncapturedError, UnfaithfulError)) for item in causes(error))


def in_trace(error: BaseException) -> bool:
    """Return whether an exception was raised while a model was traced."""
    return any(frame.filename == TRACE for item in causes(error) for frame in traceback.extract_tb(item.__traceback__))


def capture_failure(error: BaseException, capture: str) -> CaptureError:
    """Return an error of a few lines that says where a capture stopped, why, and how to fix it.

    Its cause is the exception that stopped the capture, without torch's wrappers, which print whole graphs.
    """
    errors = list(causes(error))
    own = [item for item in errors if item.__traceback__ and not isinstance(item, UncapturedError)]
    root = next((item for item in reversed(own) if not isinstance(item, ExportError)), errors[-1])
    explained = next((str(item) for item in errors if isinstance(item, ExportError)), None)
    place = place_of_failure(errors)
    passed = [frame.filename for item in errors for frame in frames(item)]
    hints = [hint for mark, hint in _HINTS.items() if mark in str(root) or any(mark in name for name in passed)]
    what = "torch.export cannot capture the model" if capture == "export" else "the model cannot be traced"
    cause = explained or summary(root)
    if _SIZES in hints:
        places = next((item.places for item in errors if isinstance(item, UncapturedError)), ())
        hints += [f"it asks for sizes here: {'; '.join(map(format_place, places[:_MOST_PLACES]))}"] if places else []
    if capture == "export" and any(mark in cause for mark in _BY_VALUES):
        hints.append(_AUTO)
    failure = CaptureError("\n  ".join([f"{what}{' at ' if place[0] else ''}{format_place(place)}", cause, *hints]))
    failure.__cause__ = root
    return failure


def differentiates(error: BaseException) -> bool:
    """Return whether a capture failed because the model computes gradients itself, or may have."""
    return any(mark in str(item) for item in causes(error) for mark in _BY_GRADIENTS)


def frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the lines of an exception that are within the capture, the outermost first."""
    found = list(traceback.extract_tb(error.__traceback__, limit=None))
    entries = [index for index, frame in enumerate(found) if frame.filename in ENTRIES]
    return found[entries[-1] + 1 :] if entries else found


def place_of_failure(errors: list[BaseException]) -> Place:
    """Return the innermost line of the model's code that the exceptions went through."""
    for error in reversed(errors):
        place = innermost((frame.filename, frame.lineno or 0) for frame in reversed(frames(error)))
        if place[0]:
            return place
    return NOWHERE


def summary(error: BaseException) -> str:
    """Return the type of an exception and the first nonblank line of its message, without torch's graphs and stacks."""
    first, *others = str(error).strip().splitlines() or [""]
    line = " ".join(
        [f"{type(error).__name__}: {first.strip()}", *(item.strip() for item in others[:1] if first.endswith(":"))]
    )
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
