"""Marks as they stand in a namespace, ours and those of lakeFS's own client (rule 9)."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.records.check import Answer, Check, Severity
from lakefs_gc.engine.records.mark import Mark, MarkPaths, warn_of_former_marks
from lakefs_gc.engine.records.mark_parts import read_part
from lakefs_gc.engine.records.stored_marks import age_of, list_marks, read_mark, refuse_unfit
from lakefs_gc.engine.run import GCRun
from lakefs_gc.errors import ClockSkewError, LakeFSGCError, MarkError
from lakefs_gc.formats.report import Summary, deleted_parquet
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.client_marks import COMMITTED, CUTOFF, UNCOMMITTED, UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.former_records import former_mark
from lakefs_gc_tests.support.lake import Lake, keys_below

NAMESPACE = "local://lake/"
KEYS = ("data/s1/a", "data/s1/b", "data/s2/c", "root")


@dataclass(frozen=True)
class Made:
    """A mark, and a copy of its namespace that a test may spoil."""

    mark: Mark
    folder: Path
    run: GCRun

    @property
    def store(self) -> ObjectStore:
        return open_store(StoreLocation(f"file://{self.folder}"))

    @property
    def paths(self) -> MarkPaths:
        return MarkPaths.of(self.mark.mark_id)

    def read(self) -> Mark:
        """Everything that a sweep reads of a mark."""
        mark = read_mark(self.store, "lake", NAMESPACE, self.mark.mark_id)
        for part in mark.parts:
            read_part(self.store, part)
        return mark


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with Lake(tmp_path_factory.mktemp("lake")) as lake:
        repository = lake.repository()
        for key in KEYS:
            repository.put_stray(key)
        collector = Collector(spark, repository)
        yield Made(collector.mark_objects(*KEYS), repository.folder, collector.begin())


@pytest.fixture
def made(original: Made, tmp_path: Path) -> Made:
    shutil.copytree(original.folder, tmp_path / "copy")
    return Made(original.mark, tmp_path / "copy", original.run)


def test_a_mark_is_read_as_it_was_made(made: Made) -> None:
    assert made.read() == made.mark
    assert made.mark.digest == made.mark.sealed().digest
    assert list(list_marks(made.store)) == [made.mark.mark_id]
    [part] = made.mark.parts
    table = read_part(made.store, part)
    assert table["address"].to_pylist() == list(KEYS)
    assert table["size"].to_pylist() == [5, 5, 5, 5]


def test_a_mark_is_dated_by_the_stores_clock(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = lake.repository()
    repository.put_stray("data/s/a")
    ahead = datetime.now(UTC) + timedelta(hours=1)
    monkeypatch.setattr(LocalStore, "now", lambda store: ahead)
    mark = Collector(spark, repository, clock=lambda: ahead + timedelta(minutes=4)).mark_objects("data/s/a")
    assert mark.created_at == ahead


@pytest.mark.parametrize(
    ("summary_minutes", "least_minutes", "most_minutes"),
    [
        (0, 60, 60),
        (45, 15, 60),  # a copy, or a mark whose machine's clock was behind
        (-45, 60, 105),  # set back, or a mark whose machine's clock was ahead
        (None, 60, 60),
    ],
)
def test_the_age_of_a_mark(
    made: Made,
    monkeypatch: pytest.MonkeyPatch,
    summary_minutes: float | None,
    least_minutes: float,
    most_minutes: float,
) -> None:
    store, summary = made.store, made.folder / made.paths.summary
    now = made.mark.created_at + timedelta(hours=1)
    monkeypatch.setattr(store, "now", lambda: now)
    if summary_minutes is None:
        summary.unlink()
    else:
        written = (made.mark.created_at + timedelta(minutes=summary_minutes)).timestamp()
        os.utime(summary, (written, written))
    age = age_of(store, made.mark, SafetyParameters())
    assert age.least == pytest.approx(timedelta(minutes=least_minutes), abs=timedelta(milliseconds=1))
    assert age.most == pytest.approx(timedelta(minutes=most_minutes), abs=timedelta(milliseconds=1))


def test_a_mark_from_the_future_has_no_age(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wait would never end, or its age never be too great."""
    store = made.store
    os.utime(made.folder / made.paths.summary, (made.mark.created_at.timestamp(),) * 2)
    monkeypatch.setattr(store, "now", lambda: made.mark.created_at - timedelta(minutes=9))
    assert age_of(store, made.mark, SafetyParameters()).least == timedelta(minutes=-9)
    monkeypatch.setattr(store, "now", lambda: made.mark.created_at - timedelta(minutes=11))
    with pytest.raises(ClockSkewError, match=r"The age of mark .* is unknown"):
        age_of(store, made.mark, SafetyParameters())


@pytest.mark.parametrize("which", ["manifest", "part"])
def test_no_byte_can_be_changed(made: Made, which: str) -> None:
    key = made.paths.manifest if which == "manifest" else made.mark.parts[0].key
    whole = made.store.read(key)
    for position in range(len(whole)):
        (made.folder / key).write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(LakeFSGCError):
            made.read()
    for other in (whole + b" ", whole[:-1], b""):
        (made.folder / key).write_bytes(other)
        with pytest.raises(LakeFSGCError):
            made.read()
    (made.folder / key).write_bytes(whole)
    assert made.read() == made.mark


def test_what_a_manifest_says_cannot_be_changed(made: Made) -> None:
    content = json.loads(made.store.read(made.paths.manifest))
    changes = {
        "candidates": 3,
        "cutoff": "2099-01-01T00:00:00+00:00",
        "repository": "other",
        "parts": [],
        "digest": "sha256:0",
    }
    for name, value in changes.items():
        made.store.put(made.paths.manifest, json.dumps(content | {name: value}, indent=2, sort_keys=True).encode())
        with pytest.raises(MarkError, match="its digest does not fit its content"):
            made.read()


def without_summary(made: Made) -> None:
    made.store.delete_many([made.paths.summary])


def with_failed_summary(made: Made) -> None:
    content = json.loads(made.store.read(made.paths.summary))
    made.store.put(made.paths.summary, json.dumps(content | {"success": False}).encode())


def gone(made: Made) -> None:
    shutil.rmtree(made.folder / made.paths.report.folder)


def renamed(made: Made) -> None:
    """Under the id of ``made``, a mark of another id."""
    other = replace(made.mark, mark_id="another")
    made.store.put(made.paths.manifest, other.sealed().to_json())


def of_another_repository(made: Made) -> None:
    other = replace(made.mark, repository="lake-2")
    made.store.put(made.paths.manifest, other.sealed().to_json())


def of_another_namespace(made: Made) -> None:
    other = replace(made.mark, namespace="local://lake-2/")
    made.store.put(made.paths.manifest, other.sealed().to_json())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_summary, "its run did not finish"),
        (with_failed_summary, "The run of mark .* failed"),
        (gone, "Mark .* does not exist in"),
        (renamed, "is the mark another of lake"),
        (of_another_repository, "of lake-2 at local://lake/, not"),
        (of_another_namespace, "at local://lake-2/, not"),
    ],
)
def test_marks_that_must_not_be_swept(made: Made, spoil: Callable[[Made], None], message: str) -> None:
    spoil(made)
    with pytest.raises(MarkError, match=message):
        made.read()


def test_an_id_names_no_other_place(made: Made) -> None:
    for bad in ("../x", "a/b", "", ".."):
        with pytest.raises(MarkError, match="is not a mark id"):
            read_mark(made.store, "lake", NAMESPACE, bad)


@pytest.mark.parametrize("lost", ["summary and parts say it", "only the summary", "only the parts"])
def test_a_lost_manifest_does_not_make_it_a_mark_of_the_client(made: Made, lost: str) -> None:
    """The client's marks have no checks: ours would lose them with its manifest (rule 12)."""
    made.store.delete_many([made.paths.manifest])
    [part] = made.mark.parts
    if lost == "only the summary":
        addresses = read_part(made.store, part).select(["address"])
        made.store.put(part.key, deleted_parquet(addresses.to_batches()[0]))
    if lost == "only the parts":
        summary = Summary.from_json(made.store.read(made.paths.summary), made.paths.summary)
        made.store.put(made.paths.summary, replace(summary, made_by="").to_json())
    with pytest.raises(MarkError, match=r"was made by lakefs-gc, but its manifest .* is missing"):
        made.read()


CHECKS_OF_ALL_KINDS = (
    Check("share_of_bytes", Answer.SAFE, "fine"),
    Check("live_objects_exist", Answer.UNSAFE, "2 referenced objects do not exist"),
    Check("no_object_kept_unverified", Answer.UNSAFE, "3 objects were kept", Severity.WARN),
    Check("server_list_is_complete", Answer.UNKNOWN, "too many commits"),
)


def put_former(made: Made, version: int) -> Mark:
    """Put the mark, with checks of all kinds, as an earlier version wrote it, and read it."""
    mark = replace(made.mark, checks=CHECKS_OF_ALL_KINDS)
    made.store.put(made.paths.manifest, former_mark(mark.to_json(), version))
    return made.read()


def test_a_mark_of_version_3_is_read_to_the_same_values(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    """It can be approved by its digest and swept; its checks have their names of today."""
    warn_of_former_marks.cache_clear()
    with caplog.at_level(logging.WARNING):
        mark = put_former(made, 3)
    expected = replace(made.mark, checks=CHECKS_OF_ALL_KINDS, schema_version=3)
    digest = json.loads(made.store.read(made.paths.manifest))["digest"]
    assert mark == replace(expected, digest=digest)
    assert digest != made.mark.digest
    assert [made.read() for _ in range(3)] == [mark] * 3
    assert len(caplog.messages) == 1, "once, however many there are"
    assert "former names of checks" in caplog.messages[0]
    refuse_unfit(mark, made.run.server)


def test_a_mark_of_version_2_is_read_and_not_swept(made: Made) -> None:
    """It can be shown and restored from; its checks do not say what could not be looked at, so it is not swept."""
    mark = put_former(made, 2)
    answers = [check.answer for check in mark.checks]
    assert answers == [Answer.SAFE, Answer.UNSAFE, Answer.UNSAFE, Answer.UNSAFE], "unknown is no answer of that version"
    with pytest.raises(MarkError, match="made by an older lakefs-gc"):
        refuse_unfit(mark, made.run.server)


@pytest.mark.parametrize("version", [2, 3])
def test_a_former_mark_that_was_changed(made: Made, version: int) -> None:
    """Its digest covers what that version wrote, down to the severity of each check."""
    put_former(made, version)
    manifest = made.store.read(made.paths.manifest)
    for old, new in ((b'"blocks": true', b'"blocks": false'), (b'"nothing_shielded"', b'"no_object_kept_unverified"')):
        made.store.put(made.paths.manifest, manifest.replace(old, new))
        with pytest.raises(MarkError, match="its digest does not fit its content"):
            made.read()


def test_a_mark_is_swept_with_its_own_server_only(made: Made) -> None:
    """A copy of a server has the same names; what it refers to is another matter (rule 12)."""
    refuse_unfit(made.mark, made.run.server)
    elsewhere = replace(made.run.server, endpoint_url="http://copy.example:8000")
    anew = replace(made.run.server, repository_created_at="2020-01-01T00:00:00+00:00")
    for server in (elsewhere, anew):
        with pytest.raises(MarkError, match="was made with the lakeFS server"):
            refuse_unfit(made.mark, server)
    unbound = replace(made.mark, run={name: fact for name, fact in made.mark.run.items() if name != "server"})
    with pytest.raises(MarkError, match="does not record the lakeFS server"):
        refuse_unfit(unbound, made.run.server)


# -- marks of lakeFS's own client


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    (tmp_path / "ns").mkdir()
    return open_store(StoreLocation(f"file://{tmp_path}/ns"))


@pytest.mark.parametrize("layout", [UNIFIED, UNCOMMITTED, COMMITTED])
def test_a_mark_of_lakefs_own_client_in_each_layout(store: ObjectStore, layout: str) -> None:
    write_client_mark(store, layout, ["data/s/a", "b"], ["data/s/c"])
    mark = read_mark(store, "lake", NAMESPACE, "m1")
    assert (mark.made_by, mark.candidates, mark.candidate_bytes) == ("lakeFS Spark client", 3, None)
    assert mark.folder == layout
    if layout != COMMITTED:
        assert mark.cutoff == CUTOFF
    assert [read_part(store, part)["address"].to_pylist() for part in mark.parts] == [["data/s/a", "b"], ["data/s/c"]]
    assert read_mark(store, "lake", NAMESPACE, "m1") == mark
    write_client_mark(store, layout, ["data/s/a", "b"], ["data/s/live"])
    assert read_mark(store, "lake", NAMESPACE, "m1").digest != mark.digest
    with pytest.raises(MarkError, match="was changed after the mark was made"):
        read_part(store, mark.parts[1])


def test_the_newest_layout_wins(store: ObjectStore) -> None:
    write_client_mark(store, COMMITTED, ["data/s/old"])
    write_client_mark(store, UNIFIED, ["data/s/new"])
    assert read_mark(store, "lake", NAMESPACE, "m1").folder == UNIFIED


@pytest.mark.parametrize("layout", [UNIFIED, UNCOMMITTED])
def test_marks_of_the_client_that_must_not_be_swept(store: ObjectStore, layout: str) -> None:
    write_client_mark(store, layout, ["data/s/a"], success=False)
    with pytest.raises(MarkError, match="The run of mark m1 failed"):
        read_mark(store, "lake", NAMESPACE, "m1")
    write_client_mark(store, layout, ["data/s/a"], said=2)
    with pytest.raises(MarkError, match="counts 2 objects, but its files have 1"):
        read_mark(store, "lake", NAMESPACE, "m1")
    store.delete_many([f"{layout}summary.json"])
    with pytest.raises(MarkError, match="Mark m1 does not exist"):
        read_mark(store, "lake", NAMESPACE, "m1")


def test_a_list_of_the_client_before_its_marks_is_refused_in_words(store: ObjectStore) -> None:
    """Before 0.4 the client had no marks: even a list that looks complete is not read."""
    write_client_mark(store, "_lakefs/retention/gc/addresses/run_id=m1/", ["data/s/a"])
    for key in keys_below(store, "_lakefs/retention/gc/addresses/run_id=m1/"):
        store.put(key.replace("m1/deleted/", "m1/"), store.read(key))
    with pytest.raises(MarkError, match=r"before 0\.4, which is never swept") as caught:
        read_mark(store, "lake", NAMESPACE, "m1")
    assert "lakefs-gc mark lake" in caught.value.remedy
    with pytest.raises(MarkError, match="Mark m2 does not exist"):
        read_mark(store, "lake", NAMESPACE, "m2")


def test_a_mark_without_a_summary_must_have_been_finished(store: ObjectStore) -> None:
    write_client_mark(store, COMMITTED, ["data/s/a"])
    store.delete_many([f"{COMMITTED}_SUCCESS"])
    with pytest.raises(MarkError, match="it has no _SUCCESS file"):
        read_mark(store, "lake", NAMESPACE, "m1")
