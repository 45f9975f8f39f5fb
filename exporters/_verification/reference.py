"""ONNX's reference evaluator as a third opinion on what torch and ONNX Runtime compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from pyops._comparison import Array, Tolerances
from pyops._models import model as models
from pyops._runtime.reference import reference_ops

from .._report import OutputComparison, Side, compare
from ..errors import ExportError

_SIDES: dict[tuple[bool, bool], Side] = {
    (True, True): "both",
    (True, False): "torch",
    (False, True): "ONNX Runtime",
    (False, False): "neither",
}


class Reference:
    """A model in ONNX's reference evaluator, with the declared ops.

    Raises
    ------
    ExportError
        The evaluator does not support an operator of the model, or the model is in ORT format.
    """

    def __init__(self, program: Any) -> None:
        model = models.load(program)
        if model.proto is None:
            raise ExportError("reference=True needs a model in ONNX's format; ONNX's evaluator does not read ORT's")
        proto = model.proto if model.folder is None else onnx.load(str(model.source))
        try:
            self._evaluator = ReferenceEvaluator(proto, new_ops=reference_ops(proto))
        except NotImplementedError as error:
            raise ExportError(
                f"ONNX's evaluator cannot give an opinion on this model: {error}; leave out reference=True, or declare "
                "the operator with @pyops.onnx_op"
            ) from error

    def judge(
        self,
        reports: Sequence[OutputComparison],
        feed: Mapping[str, Array],
        expected: Sequence[Array],
        actual: Sequence[Array],
        tolerances: Tolerances,
    ) -> list[OutputComparison]:
        """Return the comparisons of one sample, each with the side that the evaluator agrees with.

        Parameters
        ----------
        reports : sequence of OutputComparison
            The comparisons of torch's outputs (`expected`) with ONNX Runtime's (`actual`).
        """
        names = [report.name for report in reports]
        opinion = [np.asarray(array) for array in self._evaluator.run(None, dict(feed))]
        torchs, runtimes = (
            [item.ok for item in compare(0, names, side, opinion, tolerances)] for side in (expected, actual)
        )
        sides = zip_longest(torchs, runtimes, fillvalue=False)  # one side may lack an output
        return [replace(report, reference=_SIDES[side]) for report, side in zip(reports, sides, strict=True)]
