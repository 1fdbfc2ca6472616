"""What branches show at paths that are to be proved erased: unusual names."""

from __future__ import annotations

import pytest

from lakefs_gc.engine.explain.erasure import Verdict
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.proving import prover, verdicts

PATH = "people/anna.csv"
NOT_UTF8 = "people/\N{REPLACEMENT CHARACTER}.csv"


@pytest.fixture
def erased(small: LakeRepository) -> str:
    """The address of an object that was at ``PATH``, and is gone."""
    key = small.put(PATH, "Anna")
    small.commit()
    small.delete(PATH)
    small.commit()
    small.store.delete_many([key])
    return key


class ComparingBytes(LakeFSClient):
    """As lakeFS: it lists a path that is not UTF-8 with replacement characters, and knows no such name."""

    def shown_address(self, repository: str, branch: str, path: str) -> str:
        return "" if path == NOT_UTF8 else super().shown_address(repository, branch, path)


def test_a_staged_path_that_is_not_utf8_is_looked_at(small: LakeRepository, erased: str) -> None:
    prove = prover(small, small.lake.settings, ComparingBytes(small.lake.credentials))
    assert prove("people/", no_backups=True).verdict is Verdict.ERASED
    staged = small.put(NOT_UTF8, "Bert")
    proof = prove("people/", no_backups=True)
    assert verdicts(proof) == {erased: Verdict.ERASED, staged: Verdict.REMAINS}
    assert proof.verdict is Verdict.REMAINS

    # The list has one such name for several paths, so its object says nothing about the others.
    small.store.delete_many([staged])
    proof = prove("people/", no_backups=True)
    assert (proof.verdict, len(proof.not_looked_at)) == (Verdict.UNKNOWN, 1)
    assert "is not UTF-8" in proof.not_looked_at[0]

    small.stage(NOT_UTF8, small.lake.repository("outside").namespace + "x")
    assert any("outside the namespace" in each for each in prove("people/", no_backups=True).not_looked_at)
