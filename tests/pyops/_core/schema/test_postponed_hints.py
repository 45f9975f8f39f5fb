"""Hints that are resolved late: postponed annotations, other modules, Python 3.12's type parameters."""

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

POSTPONED = """
from __future__ import annotations

from typing import Generic, Literal, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pyops import onnx_op

T = TypeVar("T", np.float32, np.float64)


class Split(NamedTuple, Generic[T]):
    values: NDArray[T]
    places: NDArray[np.int64]


@onnx_op("postponed::Global")
def global_names(
    x: NDArray[T], y: NDArray[ml_dtypes.bfloat16], z: NDArray[np.str_] | None = None, *xs: NDArray[np.floating],
    n: int, mode: Literal["a", "b"] = "a", scale: float | None = None, table: np.ndarray | None = None,
) -> Split[T]:
    return Split(x, np.arange(x.size))


def make():
    U = TypeVar("U", np.int32, np.int64)

    class Local(NamedTuple, Generic[U]):
        one: NDArray[U]

    @onnx_op("postponed::Local")
    def local_names(x: NDArray[U], *, out: tuple[NDArray[U]] | None = None) -> Local[U]:
        return Local(x)

    return local_names
"""


def load(path: Path, source: str) -> Any:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module


SHARED = """
from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", np.int32, np.int64)
Number = np.int64


class Counts(NamedTuple):
    total: NDArray[Number]


class Sorted(NamedTuple, Generic[T]):
    values: NDArray[T]
"""

USER = """
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from shared_results import Counts, Sorted

from pyops import onnx_op

T = TypeVar("T", np.float32, np.float64)
Number = np.float32


@onnx_op("postponed::Count")
def count(x: NDArray[T]) -> Counts: ...


@onnx_op("postponed::Sort")
def sort(x: NDArray[T]) -> Sorted[T]: ...
"""


def test_a_named_tuple_of_another_module_means_that_modules_names(tmp_path, monkeypatch):
    (tmp_path / "shared_results.py").write_text(SHARED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shared_results", raising=False)
    user = load(tmp_path / "uses_shared_results.py", USER)
    del sys.modules["shared_results"]
    assert str(user.count.signature) == "postponed::Count(x: T (one of float32, float64)) -> int64"
    assert str(user.sort.signature) == "postponed::Sort(x: T (one of float32, float64)) -> T (one of float32, float64)"


def test_postponed_annotations_resolve(tmp_path):
    module = load(tmp_path / "postponed_hints.py", POSTPONED)
    assert str(module.global_names.signature) == (
        "postponed::Global(x: T (one of float32, float64), y: bfloat16, z: string | None, "
        "*xs: T_xs (one of float16, float32, float64), *, n: int, mode: Literal['a', 'b'] = 'a', "
        "scale: float | None = None, table: np.ndarray | None = None) -> T (one of float32, float64), int64"
    )
    assert isinstance(module.global_names(np.ones(3, np.float32), np.ones(1, ml_dtypes.bfloat16), n=1), module.Split)


def test_postponed_names_local_to_the_declaring_function_resolve(tmp_path):
    op = load(tmp_path / "postponed_locals.py", POSTPONED).make()
    assert str(op.signature) == "postponed::Local(x: U (one of int32, int64)) -> U (one of int32, int64)"
    assert op.signature.takes_out
    assert op(np.arange(2)).one.tolist() == [0, 1]


TYPE_PARAMETERS = """
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyops import onnx_op

type Floats = NDArray[np.float32]
type Of[E: np.generic] = NDArray[E]
type Count = int


class Pair[T: (np.float32, np.float64)](NamedTuple):
    first: NDArray[T]
    second: Floats


@onnx_op("pep695::Constrained")
def constrained[T: (np.float32, np.float64)](x: NDArray[T], *, n: Count = 1, sizes: list[Count] = [1]) -> Pair[T]:
    return Pair(x, x.astype(np.float32))


@onnx_op("pep695::Bound")
def bound[T: np.floating](x: Of[T], y: Floats | None = None) -> Of[T]:
    return x


@onnx_op("pep695::Union")
def union[T: np.float32 | np.int64](*xs: Of[T]) -> tuple[Of[T], Floats]:
    return xs[0], xs[0].astype(np.float32)


print(constrained.signature, bound.signature, union.signature, sep="\\n")
print(constrained(np.ones(1, np.float64)).first.dtype)
"""


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="type parameters and type aliases are syntax from Python 3.12 on"
)
@pytest.mark.parametrize("first_line", ["", "from __future__ import annotations\n"], ids=["eager", "postponed"])
def test_type_parameters_and_type_aliases_resolve(tmp_path, first_line):
    script = tmp_path / "type_parameters.py"
    script.write_text(first_line + TYPE_PARAMETERS)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout == textwrap.dedent(
        """\
        pep695::Constrained(x: T (one of float32, float64), *, n: int = 1, sizes: list[int] = [1]) -> \
T (one of float32, float64), float32
        pep695::Bound(x: T (one of float16, float32, float64), y: float32 | None) -> \
T (one of float16, float32, float64)
        pep695::Union(*xs: T (one of float32, int64)) -> T (one of float32, int64), float32
        float64
        """
    ), done.stderr


DEFAULTS = """
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyops import onnx_op

type Of[T = np.float32, U = T] = tuple[NDArray[T], NDArray[U]]
type One[T = np.float32] = NDArray[T]


class Two[T = np.float32, U = T](NamedTuple):
    first: NDArray[T]
    second: NDArray[U]


def bare(x: One) -> Of: ...
def one_given(x: One[np.int64]) -> Of[np.int64]: ...
def two_given(x: One) -> Of[np.int64, np.float32]: ...
def named(x: One) -> Two: ...


for function in (bare, one_given, two_given, named):
    print(onnx_op("pep696::Op")(function).signature)
"""


@pytest.mark.skipif(sys.version_info < (3, 13), reason="defaults of type parameters are syntax from Python 3.13 on")
@pytest.mark.parametrize("first_line", ["", "from __future__ import annotations\n"], ids=["eager", "postponed"])
def test_defaults_of_type_parameters_are_type_arguments(tmp_path, first_line):
    script = tmp_path / "defaults.py"
    script.write_text(first_line + DEFAULTS)
    done = subprocess.run([sys.executable, "-W", "ignore", script], capture_output=True, text=True, check=False)
    assert done.stdout.replace("pep696::Op", "").splitlines() == [
        "(x: float32) -> float32, float32",
        "(x: int64) -> int64, int64",
        "(x: float32) -> int64, float32",
        "(x: float32) -> float32, float32",
    ], done.stderr


NOT_DEFINED = """
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyops import onnx_op
from pyops.errors import DeclarationError

if TYPE_CHECKING:
    from annotations_for_editors import Array, Spec


def below(x: NDArray[Below]) -> NDArray[Below]: ...
def returned(x: NDArray[np.float32]) -> Outputs: ...


for function in (below, returned):
    try:
        onnx_op("late::Op")(function)
    except DeclarationError as error:
        print(error)


@onnx_op("late::Add", compile=True)
def add(x: NDArray[np.float32], *, n: int = 1) -> NDArray[np.float32]:
    return x + np.float32(n)


@add.register_shape_inference
def _(x: Spec, *, n: int) -> Spec:
    return x


@add.register_kernel("cpu")
def _(x: Array, *, n: int = 1) -> Array:
    return x - np.float32(n)


print(add(np.ones(1, np.float32)))
Below = Outputs = np.float32
"""


def test_hints_that_name_what_is_not_defined_do_not_fail_before_they_are_used(tmp_path):
    # From Python 3.14 on, annotations are evaluated late without this import.
    first_line = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
    script = tmp_path / "not_defined.py"
    script.write_text(first_line + NOT_DEFINED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    fix = "is not defined where the operator is declared; import or define it before the declaration"
    assert done.stdout.splitlines() == [
        f"late::Op, parameter 'x' of below: its hint names 'Below', which {fix}",
        f"late::Op, the return type of returned: its hint names 'Outputs', which {fix}",
        "[0.]",
    ], done.stderr
