"""Pickles of sessions that pyops 0.2.0 made are refused, and the error says what to do."""

import pickle

import pytest

from pyops import errors
from pyops._runtime import deferred


@pytest.mark.parametrize("named", [b"deferred\nunpickled", b"session\nInferenceSession"])
def test_a_pickle_of_another_release_is_refused_with_the_fix(named: bytes) -> None:
    with pytest.raises(errors.PickleError, match=r"made by pyops 0\.2\.0.*pickle the session again"):
        pickle.loads(b"cpyops._runtime." + named + b"\n.")


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Inherited'"):
        _ = deferred.Inherited
