"""What proves that the content at paths is erased, and what does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakefs_gc.config import BackupSettings, Settings
from lakefs_gc.engine.explain.erasure import ErasureProof, Verdict, prove_erased
from lakefs_gc.engine.explain.sources import open_sources
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import ConfigurationError, ErasureUnknownError, NotErasedError
from lakefs_gc.formats.durable_record import digest_of
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.report.erasure_page import erasure_page
from lakefs_gc_tests.support.collector import Lake, LakeRepository
from lakefs_gc_tests.support.known_history import KnownHistory

Prove = Callable[..., ErasureProof]


def prover(repository: LakeRepository, settings: Settings) -> Prove:
    def prove(*paths: str, no_backups: bool = False, **changes: object) -> ErasureProof:
        changed = settings.model_copy(update=changes)
        server = LakeFSClient(repository.lake.credentials)
        sources = open_sources("lake", server, changed, Workspace(changed.resolved_work_url()))
        return prove_erased(sources, paths, no_backups=no_backups)

    return prove


def verdicts(proof: ErasureProof) -> dict[str, Verdict]:
    return {each.explanation.address: each.verdict for each in proof.objects}


@pytest.mark.long(60)
def test_the_copies_of_a_known_history(history: KnownHistory, answer_settings: Settings, tmp_path: Path) -> None:
    prove, keys = prover(history.repository, answer_settings), history.keys
    proof = prove("people/")
    assert verdicts(proof) == dict.fromkeys((keys["erased"], keys["erased-too"], keys["restored"]), Verdict.REMAINS)
    by_address = {each.explanation.address: each for each in proof.objects}
    erased = by_address[keys["erased"]]
    assert len(erased.remains) == 1
    assert erased.remains[0].startswith("backup of mark")
    assert erased.deleted_by[0].endswith("the store confirmed the delete")
    assert by_address[keys["restored"]].remains[0].startswith("in the store, kept by: it is newer")
    with pytest.raises(NotErasedError, match="3 of 3 objects remain"):
        proof.raise_unless_erased()
    content = json.loads(json.dumps(proof.content()))
    assert content["digest"] == digest_of(content)

    everything = prove("twin", "staged", "table/part-1", "of-deleted-long-ago", "other-path")
    expected = ("twin", "twin-of", "staged", "replaced-on-main", "of-branch-deleted-long-ago", "two-paths")
    assert verdicts(everything).keys() > {keys[name] for name in expected}
    waiting = next(e for e in everything.objects if e.explanation.address == keys["of-branch-deleted-long-ago"])
    assert "waits for its sweep" in waiting.remains[0]

    # Without the backup, two of the three are gone.
    backups = Path(answer_settings.backup.url.removeprefix("file://"))
    shutil.move(backups / "lake", tmp_path)
    try:
        assert prove("people/anna.csv", "people/bert.csv").verdict is Verdict.ERASED
        prove("people/anna.csv", "people/bert.csv").raise_unless_erased()
        assert prove("people/").verdict is Verdict.REMAINS
    finally:
        shutil.move(tmp_path / "lake", backups)

    # Where backups are is unknown, unless the user states that none exist.
    unknown = prove("people/anna.csv", backup=BackupSettings())
    with pytest.raises(ErasureUnknownError, match="no backup location is configured"):
        unknown.raise_unless_erased()
    stated = prove("people/anna.csv", no_backups=True, backup=BackupSettings())
    assert (stated.verdict, len(stated.stated)) == (Verdict.ERASED, 1)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LakeRepository]:
    with Lake(tmp_path / "lake") as lake:
        yield lake.repository()


def test_what_is_no_proof(small: LakeRepository) -> None:
    prove = prover(small, small.lake.settings)
    key = small.put("<script>alert(1)</script>")
    small.put("of-both")
    commit = small.commit()
    for path in ("<script>alert(1)</script>", "of-both"):
        small.delete(path)
    small.commit()
    outside = small.lake.location.folder_url.replace("file://", "local://") + "elsewhere/x"
    small.stage("imported", outside)

    # A misspelt path, where nothing ever was, proves nothing.
    misspelt = prove("no-such-path", no_backups=True)
    assert (misspelt.verdict, misspelt.objects) == (Verdict.UNKNOWN, ())
    with pytest.raises(ErasureUnknownError, match="Check the spelling"):
        misspelt.raise_unless_erased()

    path = "<script>alert(1)</script>"
    assert prove(path, no_backups=True).verdict is Verdict.REMAINS
    small.store.delete_many([key])
    gone = prove(path, no_backups=True)
    assert (gone.verdict, gone.objects[0].deleted_by[0][:20]) == (Verdict.ERASED, "no sweep recorded it")

    # A missing range may have had more objects at the path.
    metarange = small.metadata_file(small.metarange_of(commit))
    content = small.store.read(metarange)
    small.store.delete_many([metarange])
    assert prove(path, no_backups=True).verdict is Verdict.UNKNOWN
    small.store.put(metarange, content)

    page = erasure_page(gone)
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert gone.digest in page
    for wrong in ("", "lakefs://lake/main/x"):
        with pytest.raises(ConfigurationError):
            prove(wrong)


def test_a_misspelt_path_beside_one_that_begins_with_it(small: LakeRepository) -> None:
    prove = prover(small, small.lake.settings)
    key = small.put("patient: anna")
    small.commit()
    small.delete("patient: anna")
    small.commit()
    small.store.delete_many([key])
    proof = prove("patient", "patient: anna", no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert [each for each in proof.not_looked_at if each.startswith("patient: no object was ever there")]
    assert prove("patient: anna", no_backups=True).verdict is Verdict.ERASED


def test_an_import_from_outside_is_not_looked_at(small: LakeRepository) -> None:
    outside = small.lake.repository("outside")
    key = outside.put("x")
    small.stage("imported", f"{outside.namespace}{key}", size_bytes=1)
    small.commit()
    proof = prover(small, small.lake.settings)("imported", no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert any("outside the namespace" in each for each in proof.not_looked_at)
