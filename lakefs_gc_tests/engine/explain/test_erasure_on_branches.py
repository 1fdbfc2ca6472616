"""What branches show at paths that are to be proved erased: unusual names, and what changes meanwhile."""

from __future__ import annotations

from collections.abc import Callable

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
    small.put("live")
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
    assert proof.verdict is Verdict.UNKNOWN
    assert "is not UTF-8" in proof.not_looked_at[0]

    small.stage(NOT_UTF8, small.lake.repository("outside").namespace + "x")
    assert any("outside the namespace" in each for each in prove("people/", no_backups=True).not_looked_at)


class Changing(LakeFSClient):
    """A server on which something happens before the first look-up of a branch: the metadata files are read then."""

    meanwhile: Callable[[], object] | None = None

    def shown_address(self, repository: str, branch: str, path: str) -> str:
        self._happen()
        return super().shown_address(repository, branch, path)

    def shown_page(
        self, repository: str, branch: str, amount: int, *, prefix: str = "", after: str = ""
    ) -> tuple[dict[str, str], bool]:
        self._happen()
        return super().shown_page(repository, branch, amount, prefix=prefix, after=after)

    def _happen(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile()


@pytest.mark.parametrize("path", [PATH, "people/"])
def test_what_is_committed_and_deleted_meanwhile_is_not_erased(small: LakeRepository, erased: str, path: str) -> None:
    """It was staged at the time of the question. No branch shows it any more, and no file had it before."""
    server = Changing(small.lake.credentials)
    prove = prover(small, small.lake.settings, server)
    staged = small.put(PATH, "Anna, again")

    def commit_and_delete() -> None:
        small.commit()
        small.delete(PATH)
        small.commit()

    server.meanwhile = commit_and_delete
    proof = prove(path, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert proof.not_looked_at == (
        f"{PATH}: the repository changed while it was read, and has another object there: {staged}. Ask again",
    )
    again = prove(path, no_backups=True)
    assert (again.verdict, verdicts(again)[staged]) == (Verdict.REMAINS, Verdict.REMAINS)


@pytest.mark.parametrize("path", [PATH, "people/"])
def test_what_a_new_branch_shows_is_not_erased(small: LakeRepository, erased: str, path: str) -> None:
    server = Changing(small.lake.credentials)
    prove = prover(small, small.lake.settings, server)
    staged: list[str] = []

    def upload() -> None:
        small.branch("dev")
        staged.append(small.put(PATH, "Anna, again", branch="dev"))

    server.meanwhile = upload
    proof = prove(path, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert f"another object there: {staged[0]}. Ask again" in proof.not_looked_at[0]


def test_other_changes_meanwhile_do_not_spoil_a_proof(small: LakeRepository, erased: str) -> None:
    """A repository that is in use changes all the time."""
    server = Changing(small.lake.credentials)

    def commit_another() -> None:
        small.put("table/part-0")
        small.commit()
        small.branch("dev")

    server.meanwhile = commit_another
    assert prover(small, small.lake.settings, server)("people/", no_backups=True).verdict is Verdict.ERASED


def test_what_is_imported_and_deleted_meanwhile_is_not_looked_at(small: LakeRepository, erased: str) -> None:
    server = Changing(small.lake.credentials)
    url = small.lake.repository("outside").namespace + "x"

    def import_and_delete() -> None:
        small.stage(PATH, url)
        small.commit()
        small.delete(PATH)
        small.commit()

    server.meanwhile = import_and_delete
    proof = prover(small, small.lake.settings, server)(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert f"another object there: {url}. Ask again" in proof.not_looked_at[0]
