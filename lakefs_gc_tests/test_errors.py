"""Errors tell what to do, survive pickling, and know what the command line ends with."""

from __future__ import annotations

import inspect
import pickle

import pytest

from lakefs_gc import errors
from lakefs_gc.errors import (
    CorruptRangeError,
    LakeFSGCError,
    SafetyError,
    ServerUnavailableError,
    StoreUnavailableError,
    SweepIncompleteError,
)

CLASSES = [
    found
    for _, found in inspect.getmembers(errors, inspect.isclass)
    if issubclass(found, LakeFSGCError) and found.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_pickles(kind: type[LakeFSGCError]) -> None:
    made = errors._rebuild(kind, "what happened", "what to do", {"status": 503, "outcomes": {"failed": 1}})
    copy = pickle.loads(pickle.dumps(made))
    assert type(copy) is kind
    assert (str(copy), copy.facts, copy.remedy) == (str(made), made.facts, "what to do")


def test_a_damaged_range_says_where() -> None:
    error = pickle.loads(pickle.dumps(CorruptRangeError("_lakefs/abc", "checksum mismatch", offset=42)))
    assert error.message == "_lakefs/abc: checksum mismatch (at byte 42)"
    assert error.facts == {"file": "_lakefs/abc", "reason": "checksum mismatch (at byte 42)", "offset": 42}
    assert "nothing that it may protect was deleted" in error.remedy


def test_a_remedy_is_shown_with_the_message() -> None:
    assert str(LakeFSGCError("no", remedy="wait")) == "no\n  what to do: wait"
    assert str(LakeFSGCError("no")) == "no"


def test_exit_codes_tell_troubles_apart() -> None:
    assert {kind.exit_code for kind in CLASSES if issubclass(kind, SafetyError)} == {3}
    assert SweepIncompleteError.exit_code == 5
    assert {kind.exit_code for kind in CLASSES} == {1, 2, 3, 4, 5, 130}


def test_only_what_may_pass_is_transient() -> None:
    assert {kind for kind in CLASSES if kind.transient} == {StoreUnavailableError, ServerUnavailableError}
