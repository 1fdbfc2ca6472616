"""Errors have a remedy, can be pickled, and define the exit code of the command line."""

from __future__ import annotations

import inspect
import pickle

import pytest

from lakefs_gc import errors
from lakefs_gc.errors import (
    CorruptRangeError,
    InterruptedRunError,
    LakeFSGCError,
    SafetyError,
    ServerUnavailableError,
    StoreUnavailableError,
    SweepIncompleteError,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, LakeFSGCError) and kind.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_pickles(kind: type[LakeFSGCError]) -> None:
    error = errors._rebuild(kind, "what happened", "what to do", {"status": 503, "outcomes": {"failed": 1}})
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.facts, copy.remedy) == (str(error), error.facts, "what to do")


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_is_documented_in_one_sentence(kind: type[LakeFSGCError]) -> None:
    documented = (kind.__doc__ or "").strip()
    assert documented.endswith(".")
    assert kind is LakeFSGCError or "\n" not in documented


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind not in (LakeFSGCError, InterruptedRunError)])
def test_every_class_has_a_remedy_of_its_own(kind: type[LakeFSGCError]) -> None:
    error = errors._rebuild(kind, "what happened", "", {})
    assert error.remedy == kind.default_remedy != ""
    assert str(error) == f"what happened\n  what to do: {kind.default_remedy}"


def test_a_damaged_range_has_its_offset() -> None:
    error = pickle.loads(pickle.dumps(CorruptRangeError("_lakefs/abc", "checksum mismatch", offset=42)))
    assert error.message == "_lakefs/abc: checksum mismatch (at byte 42)"
    assert error.facts == {"file": "_lakefs/abc", "reason": "checksum mismatch (at byte 42)", "offset": 42}
    assert "Nothing that the file may protect was deleted" in error.remedy


def test_a_remedy_is_shown_with_the_message() -> None:
    assert str(LakeFSGCError("no", remedy="wait")) == "no\n  what to do: wait"
    assert str(LakeFSGCError("no")) == "no"


def test_exit_codes_distinguish_kinds_of_failure() -> None:
    assert {kind.exit_code for kind in CLASSES if issubclass(kind, SafetyError)} == {3}
    assert SweepIncompleteError.exit_code == 5
    assert {kind.exit_code for kind in CLASSES} == {1, 2, 3, 4, 5, 6, 7, 130}


def test_only_what_may_pass_is_transient() -> None:
    assert {kind for kind in CLASSES if kind.transient} == {StoreUnavailableError, ServerUnavailableError}
