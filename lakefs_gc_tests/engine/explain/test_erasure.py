"""What proves that the content at paths is erased, and what does not."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import BackupSettings, Settings
from lakefs_gc.engine.explain.erasure import Verdict, erased_at
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.mark_facts import facts_key
from lakefs_gc.errors import ConfigurationError, ErasureUnknownError, NotErasedError
from lakefs_gc.formats.durable_record import digest_of
from lakefs_gc.report.erasure_page import erasure_page
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.known_history import KnownHistory
from lakefs_gc_tests.support.lake import LakeRepository, keys_below
from lakefs_gc_tests.support.mark_facts import write_facts_of
from lakefs_gc_tests.support.proving import prover, verdicts


@pytest.mark.of_ci
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
        # Where other backups are is unknown, unless the user states that none exist.
        unknown = prove("people/anna.csv", backup=BackupSettings())
        with pytest.raises(ErasureUnknownError, match="no backup location is configured"):
            unknown.raise_unless_erased()
        stated = prove("people/anna.csv", no_backups=True, backup=BackupSettings())
        assert (stated.verdict, len(stated.stated)) == (Verdict.ERASED, 1)
    finally:
        shutil.move(tmp_path / "lake", backups)
    # The backup noted its location beside the mark, so it need not be configured.
    assert prove("people/anna.csv", backup=BackupSettings()).verdict is Verdict.REMAINS


def test_what_is_no_proof(small: LakeRepository) -> None:
    prove = prover(small, small.lake.settings)
    small.put("of-both")
    key = small.put("<script>alert(1)</script>")
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


def test_without_a_path_nothing_is_proved(small: LakeRepository) -> None:
    """A list of paths that a program made may be empty."""
    with pytest.raises(ConfigurationError, match="No path was given") as refused:
        prover(small, small.lake.settings)(no_backups=True)
    assert "Pass at least one path" in refused.value.remedy


@pytest.mark.long(40)
def test_a_path_that_only_a_mark_recorded(spark: SparkSession, small: LakeRepository) -> None:
    """Its commit expired, its object was swept, and then its metadata files were deleted."""
    prove = prover(small, small.lake.settings)
    address = small.put("people/anna.csv")
    commit = small.commit(age_days=30)
    before = {key for key in keys_below(small.store, "_lakefs/") if "/retention/" not in key}
    small.delete("people/anna.csv")
    small.put("live")
    small.commit(age_days=20)
    small.keep_days(10)
    collector = Collector(spark, small)
    mark = collector.collect_and_mark()
    facts = write_facts_of(collector, mark)
    assert [row["path"] for row in facts.sample] == ["people/anna.csv"]
    collector.sweep(mark, live=[])
    swept = prove("people/", no_backups=True)
    assert (swept.verdict, verdicts(swept)) == (Verdict.ERASED, {address: Verdict.ERASED})
    [marking] = swept.objects[0].explanation.marks
    assert marking.outcome
    assert erased_at(swept.objects) == marking.outcome.recorded_at
    without_record = replace(swept.objects[0], explanation=replace(swept.objects[0].explanation, marks=()))
    assert erased_at([*swept.objects, without_record]) is None

    gone = [key for key in before if key != "_lakefs/dummy"]
    assert small.metadata_file(small.metarange_of(commit)) in gone
    small.store.delete_many(gone)
    for path in ("people/", "people/anna.csv"):
        proof = prove(path, no_backups=True)
        assert verdicts(proof) == {address: Verdict.ERASED}
        (deleted_by,) = proof.objects[0].deleted_by
        assert deleted_by.startswith(f"sweep of mark {mark.mark_id}")
        assert deleted_by.endswith("the store confirmed the delete")
        assert proof.objects[0].explanation.asked == "people/anna.csv"
        # The same files may have had another object there.
        assert proof.verdict is Verdict.UNKNOWN
        assert any("recorded an object there" in each for each in proof.not_looked_at)
    assert not prove("people", no_backups=True).objects

    key = facts_key(mark.mark_id)
    small.store.put(key, small.store.read(key)[:-9])
    damaged = prove("live", no_backups=True)
    assert any(each.startswith("the paths that mark") for each in damaged.not_looked_at)


def test_a_misspelt_path_beside_one_that_begins_with_it(small: LakeRepository) -> None:
    prove = prover(small, small.lake.settings)
    small.put("live")
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


def test_what_a_branch_shows_from_outside_is_not_looked_at(small: LakeRepository) -> None:
    """Nobody committed it. Before, another object was at the path, and is gone."""
    prove = prover(small, small.lake.settings)
    small.put("live")
    key = small.put("people/anna.csv")
    small.commit()
    small.delete("people/anna.csv")
    small.commit()
    small.store.delete_many([key])
    assert prove("people/", no_backups=True).verdict is Verdict.ERASED
    outside = small.lake.repository("outside")
    url = outside.namespace + outside.put("x", "Anna")
    small.branch("dev")
    small.stage("people/anna.csv", url, branch="dev", size_bytes=4)
    assert small.read("people/anna.csv", "dev") == b"Anna"
    for path in ("people/anna.csv", "people/"):
        proof = prove(path, no_backups=True)
        assert verdicts(proof) == {key: Verdict.ERASED}
        assert proof.verdict is Verdict.UNKNOWN
        [unread] = proof.not_looked_at
        assert unread == (
            f"people/anna.csv: {url} is outside the namespace, so lakefs-gc neither deletes nor checks it"
        )
    small.delete("people/anna.csv", branch="dev")
    assert prove("people/", no_backups=True).verdict is Verdict.ERASED


@pytest.mark.long(40)
def test_a_backup_below_a_former_name_remains(spark: SparkSession, small: LakeRepository, tmp_path: Path) -> None:
    """The repository was re-created with its namespace under another name."""
    (tmp_path / "backups").mkdir()
    backups = Backups(StoreLocation((tmp_path / "backups").as_uri()))
    prove = prover(small, small.lake.settings)
    backup = BackupSettings(url=backups.location.url)
    key = small.put("people/anna.csv", "Anna")
    small.commit()
    small.delete("people/anna.csv")
    small.commit()
    collector = Collector(spark, small)
    mark = collector.mark_objects(key)
    backups.back_up(spark, collector, mark)
    collector.sweep(mark, live=[])
    shutil.move(tmp_path / "backups" / "lake", tmp_path / "backups" / "lake-before")
    proof = prove("people/anna.csv", backup=backup)
    assert proof.verdict is Verdict.REMAINS
    assert proof.objects[0].remains == (f"backup of mark {mark.mark_id} of lake-before in {backup.url}",)
    manifest = BackupPaths("lake-before", mark.mark_id).manifest
    backups.store.put(manifest, backups.store.read(manifest).replace(b"local://lake/", b"local://fake/"))
    unknown = prove("people/anna.csv", backup=backup)
    assert unknown.verdict is Verdict.UNKNOWN
    assert "was changed after it was written" in unknown.not_looked_at[0]
