"""Annotations and signatures of functions, where Python evaluates annotations early and where it does so late."""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable
from typing import Any

annotations_of: Callable[[Any], dict[str, Any]]
"""Return the annotations of a function or class."""
signature_of: Callable[..., inspect.Signature]
"""Return a function's signature, as `inspect.signature` does."""

if sys.version_info < (3, 14):
    ANNOTATED = "__annotations__"
    annotations_of, signature_of = operator.attrgetter(ANNOTATED), inspect.signature
else:
    # Evaluated when they are read: a ForwardRef stands for what names something that is not defined.
    from annotationlib import Format, get_annotations

    def _evaluating(read: Callable[..., Any], option: str) -> Callable[..., Any]:
        def evaluated(function: Any, **options: Any) -> Any:
            try:
                return read(function, **options)
            except (NameError, AttributeError, TypeError):
                # Not at once: in this format Python ignores all exceptions, those of a signal's handler as well.
                return read(function, **options, **{option: Format.FORWARDREF})

        return evaluated

    ANNOTATED = "__annotate__"
    annotations_of = _evaluating(get_annotations, "format")
    signature_of = _evaluating(inspect.signature, "annotation_format")
