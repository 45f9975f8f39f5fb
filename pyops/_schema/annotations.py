"""Annotations and signatures of functions, where Python evaluates annotations early and where it does so late."""

from __future__ import annotations

import functools
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

    ANNOTATED = "__annotate__"
    annotations_of = functools.partial(get_annotations, format=Format.FORWARDREF)
    signature_of = functools.partial(inspect.signature, annotation_format=Format.FORWARDREF)
