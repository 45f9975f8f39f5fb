"""Comparison of two models that should compute the same, value by value."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Any

import numpy as np

from .._core import Model, ModelSource, load_model
from .._support.progress import progress
from .._support.text_tables import Part
from .._tolerances import TOLERANCES, Array, Tolerances, tolerances_by_name
from ..errors import InputError
from ._model_session import session_of
from ._random_inputs import given_feed, random_feed
from ._wrong_node import CALL, Expected, Location, ModelValues, ValueComparison, compare_value, locate, metadata

_TIMES = 10
"""How many times the tolerances of `assert_close`, relative to the largest element, two models may differ."""

_RELIABLE = 0.9


@dataclass(frozen=True, repr=False, kw_only=True)
class ModelComparison(Location):
    """The comparison of two models, which `compare_models` returns: where the second begins to differ from the first.

    Attributes
    ----------
    ok : bool
        Whether every output is within its tolerance.
    generated : bool
        Whether the inputs were generated.
    """

    ok: bool
    generated: bool

    @property
    def table(self) -> tuple[ValueComparison, ...]:
        """Return the comparisons of the values that both models have, in the order of the second one's nodes."""
        return self.values

    def parts(self) -> list[Part]:
        """Return the parts to display: the first wrong node, or that the models agree, and the table of values."""
        verdict = ["the models agree"] * self.ok + self.headline()
        return [*verdict, *["the inputs were generated"] * self.generated, *self.values_around()]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as what JSON can represent."""
        first = None if self.first is None else dataclasses.asdict(self.first)
        return {"ok": self.ok, "first": first, "table": list(map(dataclasses.asdict, self.table)), "note": self.note}


@progress("comparing the models")
def compare_models(
    a: ModelSource,
    b: ModelSource,
    inputs: Mapping[str, Any] | None = None,
    *,
    tolerances: Mapping[str, tuple[float, float]] | None = None,
    fill_missing: bool = False,
    libraries: Iterable[str | os.PathLike[str]] = (),
) -> ModelComparison:
    """Compare two models that should compute the same, and find the first wrong node of the second.

    Use it before and after a quantization, an optimization or a replacement, or for models from two exporters. Values
    are compared that have the same name and operator in both models, or come from the same torch call, or have the same
    position in the sequence of operators.

    Parameters
    ----------
    a, b : path, bytes, onnx.ModelProto or torch.onnx.ONNXProgram
        The reference, and the model to compare with it.
    inputs : mapping of str to array, optional
        The inputs by name; random numbers by default, with 3 for each size that the model does not give.
    tolerances : mapping, optional
        ``(rtol, atol)`` by dtype, such as ``"float32"``. By default an element may differ by ten times
        what `pyops.testing.assert_close` allows for the largest element of its tensor.
    fill_missing, libraries
        As for `pyops.InferenceSession`; the paths of custom-op libraries to register.

    Returns
    -------
    ModelComparison
        ``.ok``, ``.first`` and ``.table``; it displays as text and as HTML.

    Raises
    ------
    InputError
        An argument has an invalid value, the models have different names of inputs or outputs, or an input cannot be
        generated.
    ModelError
        A session cannot load a model, or a model is damaged or in ORT format, whose values cannot be compared.

    Examples
    --------
    >>> import onnx, pyops
    >>> text = '<ir_version: 10, opset_import: ["": 20]> main (float[n] x) => (float[n] y) { a = Abs(x)  y = %s(a) }'
    >>> a, b = (onnx.parser.parse_model(text % name) for name in ("Exp", "Log"))
    >>> comparison = pyops.compare_models(a, b)
    >>> comparison.ok, comparison.first.op
    (False, 'Log')
    """
    allowed = tolerances_by_name(tolerances)
    if isinstance(libraries, (str, os.PathLike)):
        raise InputError(f"libraries is a list of paths: pass libraries=[{os.fspath(libraries)!r}]")
    paths = list(map(os.path.abspath, libraries))  # the loader does not look for a name in the current folder
    given = None if inputs is None else given_feed(inputs)
    models = [_loaded(a), _loaded(b)]
    make_session = partial(session_of, libraries=paths, fill_missing=fill_missing)
    sessions = [make_session(item, optimizing=True) for item in models]
    _check_interfaces(sessions)
    feed = random_feed(sessions[0].get_inputs(), np.random.default_rng(0)) if given is None else given
    names = [item.name for item in sessions[0].get_outputs()]
    right, other = (dict(zip(names, session.run(names, feed), strict=True)) for session in sessions)
    agree = _agree(right, other, allowed)
    first, second = (ModelValues(item, feed, make_session) for item in models)
    pairs = counterparts(first, second)

    def reference(wanted: Sequence[str]) -> dict[str, Expected]:
        found = first.run([pairs[name] for name in wanted if name in pairs])
        return {name: _expected(found[pairs[name]], allowed) for name in wanted if pairs.get(name) in found}

    found = locate(second, reference, agree)
    note = _not_compared(right) if agree else found.note
    if not agree:
        computed = [name for name in names if name in first.producers and name in second.producers]
        right, other = (values.run(computed) for values in (first, second))
        if _agree(right, other, allowed):
            note = "the models differ only with ONNX Runtime's optimizations, which change what one of them computes"
    return ModelComparison(found.first, found.values, found.steps, note, ok=agree, generated=inputs is None)


def _loaded(source: ModelSource) -> Model:
    model = load_model(source)
    model.parsed("the values of a model in ORT format cannot be compared; pass the model that it was made from")
    return model


def _check_interfaces(sessions: Sequence[Any]) -> None:
    for what in ("inputs", "outputs"):
        names = [[item.name for item in getattr(session, f"get_{what}")()] for session in sessions]
        if sorted(names[0]) != sorted(names[1]):
            raise InputError(
                f"the {what} of the models have different names: {', '.join(names[0])} and {', '.join(names[1])}; "
                "rename those of one model"
            )


def _expected(array: Array, tolerances: Tolerances) -> Expected:
    if array.dtype.name in tolerances:
        return Expected(array, *tolerances[array.dtype.name])
    rtol, atol = TOLERANCES.get(array.dtype.name, (0.0, 0.0))
    if not rtol:
        return Expected(array, 0.0, 0.0)
    sizes = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    largest = float(sizes[np.isfinite(sizes)].max(initial=0))
    return Expected(array, 0.0, _TIMES * (atol + rtol * largest))


def _agree(right: Mapping[str, Any], other: Mapping[str, Any], tolerances: Tolerances) -> bool:
    arrays = {name: _expected(item, tolerances) for name, item in right.items() if isinstance(item, np.ndarray)}
    return all(compare_value(name, "", "", expected, other[name]).ok for name, expected in arrays.items())


def _not_compared(outputs: Mapping[str, Any]) -> str:
    """Return which outputs have no number that could differ, and why."""
    found = []
    for name, array in outputs.items():
        if not isinstance(array, np.ndarray):
            found.append(f"{name!r} (no tensor)")
        elif not array.size or (array != array).all():  # np.isnan takes no strings
            found.append(f"{name!r} ({'NaN everywhere' if array.size else 'empty'})")
    return f"but no number was compared of output {', '.join(found)}; other inputs may show more" if found else ""


def counterparts(a: ModelValues, b: ModelValues) -> dict[str, str]:
    """Return the values of `b` that `a` has too, and their names there.

    These are the outputs, and the values of the same name, or else of the same torch call, or else of the same
    position in the sequence of operators of the nodes that are left. Numbered names of exporters may stand for other
    values in another model: where more than a few are of other operators, only those of the same operator count.
    """
    common = [name for name in b.producers if name in a.producers]
    alike = [name for name in common if _operator(a, name) == _operator(b, name)]
    found = {name: name for name in (common if len(alike) >= _RELIABLE * len(common) else alike)}
    found |= {name: name for name in b.outputs if name in a.producers and name in b.producers}
    taken, calls = set(found.values()), _last_of_calls(a)
    same = {name: calls[call] for call, name in _last_of_calls(b).items() if call in calls}
    found |= {name: other for name, other in same.items() if name not in found and other not in taken}
    left = [_first_outputs(a, set(found.values())), _first_outputs(b, found.keys())]
    keys = [[_operator(values, name) for name in names] for values, names in zip((a, b), left, strict=True)]
    return found | {left[1][j]: left[0][i] for i, j in _common_subsequence(*keys)}


def _common_subsequence(a: Sequence[object], b: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Yield the positions of equal items in two sequences, in the same order in both.

    Models repeat themselves, so common beginnings and ends are removed before the longest common parts are searched.
    """
    shorter = min(len(a), len(b))
    begin = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    end = next((i for i in range(shorter - begin) if a[-1 - i] != b[-1 - i]), shorter - begin)
    middle = SequenceMatcher(None, a[begin : len(a) - end], b[begin : len(b) - end], autojunk=False)
    yield from ((i, i) for i in range(begin))
    yield from ((begin + i + k, begin + j + k) for i, j, size in middle.get_matching_blocks() for k in range(size))
    yield from ((len(a) - 1 - i, len(b) - 1 - i) for i in range(end))


def _first_outputs(values: ModelValues, taken: Any) -> list[str]:
    return [node.output[0] for node in values.nodes if node.output and node.output[0] not in taken]


def _operator(values: ModelValues, name: str) -> tuple[str, str]:
    node = values.nodes[values.producers[name]]
    return node.domain, node.op_type


def _last_of_calls(values: ModelValues) -> dict[str, str]:
    """Return the last value of each torch call that the nodes come from."""
    found = {metadata(node, CALL): node.output[0] for node in values.nodes if len(node.output) == 1}
    return {call: name for call, name in found.items() if call}
