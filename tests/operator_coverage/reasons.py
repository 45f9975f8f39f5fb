"""The reason why a call failed, in one line, and its kind."""

from __future__ import annotations

import re
from enum import StrEnum

from exporters._lowering.lower import causes
from exporters._report import VerificationReport
from exporters.errors import CaptureError, ExportError

_LONGEST = 240

# Errors name the line of the model's code, which is the same for all calls here.
_FOLDERS = re.compile(r"/\S*/(?=\w+\.py\b)")
_OWN_LINE = re.compile(r" \(\S*single_call\.py:\d+: .*\)")


class Kind(StrEnum):
    """The stage at which a call failed."""

    CAPTURE = "torch.export stops"
    TRANSLATION = "no translation"
    EXPORT = "exporter fails"
    SIZE = "one size only"
    RUNTIME = "ONNX Runtime refuses"
    SHAPE = "wrong shape or dtype"
    VALUES = "wrong values"
    CRASH = "crash"
    TIMEOUT = "time-out"


def of_export(error: Exception) -> Kind:
    """Return the kind of an exception raised by an export."""
    texts = [f"{type(cause).__name__}: {cause}" for cause in causes(error)]
    if any("No ONNX function found" in text or "has no translation for" in text for text in texts):
        return Kind.TRANSLATION
    return Kind.CAPTURE if isinstance(error, CaptureError) else Kind.EXPORT


def one_line(error: BaseException) -> str:
    """Return the message of an exception in one line: that of an ExportError, or of the root cause."""
    own = isinstance(error, ExportError)
    root = error if own else list(causes(error))[-1]
    lines = [line.strip() for line in str(root).splitlines() if line.strip()]
    del lines[: isinstance(error, CaptureError)]  # the line of the model's code
    text = _FOLDERS.sub("", _OWN_LINE.sub("", lines[0] if lines else ""))
    # In an ExportError, the fix follows the first semicolon.
    return shortened(text.partition("; ")[0] if own else f"{type(root).__name__}: {text}")


def shortened(text: str) -> str:
    """Return the text, truncated to the maximum length."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def of_report(report: VerificationReport) -> tuple[Kind, str]:
    """Return the kind and the reason of a failed comparison."""
    worst = next(item for item in report.outputs if not item.ok)
    where = f"output {worst.name} of {worst.dtype}{list(worst.shape)}"
    if worst.problem:
        return Kind.SHAPE, shortened(f"{where}: {worst.problem}")
    return Kind.VALUES, f"{where} is off by up to {worst.absolute:.3g}, relatively {worst.relative:.3g}"
