"""Objects at the root whose names lakeFS did not generate are counted and shown, but never marked or swept."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.listing.foreign_names import has_unrecognized_name as spark_has_unrecognized_name
from lakefs_gc.engine.records.check import Answer, Check
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.sweep.at_mark import Accepted
from lakefs_gc.engine.sweep.client_marks import ClientMarkChecks
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import InputOrderError, MarkError, NamespaceError
from lakefs_gc.formats.candidate_addresses import CHOSEN_NAME_REGEX, ISSUED_AT_ROOT_REGEX, has_unrecognized_name
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.addresses import CANDIDATES, CHOSEN, ISSUED, ISSUED_IN_DATA, OTHERS, UNRECOGNIZED
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.lake import Lake, LakeRepository

STATE = "terraform.tfstate"
ROOT = {STATE: b"{}", "report.csv": b"1,2,3"}
OLD_LAYOUT, XID = "4024870a35b7869697429ebc31187143", "dc0gu11ksdual6uirqo0"


def fill(repository: LakeRepository) -> set[str]:
    """Store unrecognized names at the root, a live object, and garbage. Return the garbage."""
    repository.put("live")
    repository.commit()
    for key, content in ROOT.items():
        repository.put_stray(key, content)
    return {repository.put_stray(key) for key in ("data/s/garbage", OLD_LAYOUT, XID)}


def decisions(collector: Collector) -> dict[str, str]:
    rows = collector.dataset("unmatched").dataframe.collect()
    return {row["address"]: row["found_in"] for row in rows}


def test_the_rule_has_the_same_meaning_in_java_and_python(spark: SparkSession) -> None:
    addresses = [*CANDIDATES, *ISSUED, *OTHERS, *UNRECOGNIZED]
    frame = spark.createDataFrame([(address,) for address in addresses], "address string")
    found = {row["address"] for row in frame.where(spark_has_unrecognized_name()).collect()}
    assert found == {address for address in addresses if has_unrecognized_name(address)}


def test_chosen_names_are_those_that_lakefs_does_not_generate(spark: SparkSession) -> None:
    addresses = [*ISSUED, *UNRECOGNIZED, *ISSUED_IN_DATA, *CHOSEN]
    frame = spark.createDataFrame([(address,) for address in addresses], "address string")
    found = {row["address"] for row in frame.where(F.col("address").rlike(CHOSEN_NAME_REGEX)).collect()}
    assert found == {address for address in addresses if re.match(CHOSEN_NAME_REGEX, address)} == set(CHOSEN)


def test_issued_names_at_the_root_are_those_that_lakefs_generates(spark: SparkSession) -> None:
    addresses = [*CANDIDATES, *ISSUED, *OTHERS, *UNRECOGNIZED, *ISSUED_IN_DATA, *CHOSEN]
    frame = spark.createDataFrame([(address,) for address in addresses], "address string")
    found = {row["address"] for row in frame.where(F.col("address").rlike(ISSUED_AT_ROOT_REGEX)).collect()}
    assert found == {address for address in addresses if re.match(ISSUED_AT_ROOT_REGEX, address)} == set(ISSUED)


def test_unrecognized_names_are_counted_and_not_marked(spark: SparkSession, repository: LakeRepository) -> None:
    garbage = fill(repository)
    repository.put_stray("young.csv", age_hours=1)
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == garbage
    assert decisions(collector) == dict.fromkeys(garbage, "store") | dict.fromkeys(ROOT, "not_lakefs")
    assert collector.manifest("store_listing").facts["strangers"] == 3, "whatever their age"
    facts = collector.manifest("unmatched").facts
    assert (facts["unreferenced"], facts["not_in_store"], facts["named_at_root"]) == (3, 0, "")
    assert (facts["not_lakefs"], facts["not_lakefs_bytes"]) == (2, 7)
    assert mark.not_lakefs == (2, 7)
    assert collector.read_mark(mark.mark_id) == mark
    collector.sweep(mark)
    assert repository.store.stat_many(list(ROOT)).keys() == ROOT.keys()
    assert not repository.objects() & garbage


@pytest.mark.parametrize("committed", [False, True])
def test_a_root_whose_names_the_repository_references_is_collected(
    spark: SparkSession, repository: LakeRepository, committed: bool
) -> None:
    """The recordings of the old layout have such references."""
    garbage = fill(repository)
    repository.stage("named", repository.put_stray("by hand"))
    if committed:
        repository.commit()
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {*garbage, *ROOT}
    assert (mark.named_at_root, mark.not_lakefs) == ("by hand", (0, 0))
    collector.sweep(mark)
    assert set(collector.swept.values()) == {"deleted"}


@pytest.mark.parametrize("address", [r"data\tables\a.parquet", "data%2Ftables%2Fa.parquet"])
def test_an_address_that_may_mean_another_one_does_not_make_a_root_collected(
    spark: SparkSession, repository: LakeRepository, address: str
) -> None:
    """A client on Windows may build one; the object is not at the root."""
    garbage = fill(repository)
    repository.stage("named", repository.put_stray(address))
    collector = Collector(spark, repository)
    collector.collect()
    assert collector.addresses("candidates") == garbage
    assert decisions(collector)[STATE] == "not_lakefs"


def test_the_namespace_of_another_server_in_this_one_is_noticed(
    spark: SparkSession, s3_namespace: StoreLocation, tmp_path: Path
) -> None:
    """This server does not know that repository, but the listing has its metadata."""
    with Lake(tmp_path / "lake", s3_namespace) as lake:
        repository = lake.repository()
        repository.put("live")
        repository.commit()
        Collector(spark, repository).collect(until="store_listing")
        with Lake(tmp_path / "other", StoreLocation(f"{repository.namespace}data/")) as another_server:
            team = another_server.repository("team")
            team.put("live")
            team.commit()
        with pytest.raises(NamespaceError, match=r"/data/team/ is the namespace of another repository"):
            Collector(spark, repository).collect(until="store_listing")


def test_a_reference_of_another_repository_does_not_make_a_root_collected(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    garbage = fill(repository)
    other = lake.repository("other")
    other.stage("borrowed", f"{repository.namespace}report.csv")
    other.commit()
    collector = Collector(spark, repository)
    collector.collect()
    assert collector.addresses("foreign_references") == {"report.csv"}
    assert collector.addresses("candidates") == garbage
    assert decisions(collector)[STATE] == "not_lakefs"


def test_a_reference_to_a_name_that_lakefs_generated_does_not_make_a_root_collected(
    spark: SparkSession, repository: LakeRepository
) -> None:
    """An old repository references objects that lakeFS wrote at its root. That proves nothing about other names."""
    garbage = fill(repository)
    repository.stage("old", repository.put_stray("0" * 32))
    repository.stage("reserved", "dummy")
    repository.stage("elsewhere", "other/x")
    repository.commit()
    collector = Collector(spark, repository)
    collector.collect()
    assert collector.addresses("candidates") == garbage


@pytest.fixture
def whole_bucket(s3_server: SeaweedFS, s3_namespace: StoreLocation, tmp_path: Path) -> Iterator[LakeRepository]:
    """A repository whose namespace is a whole bucket."""
    assert s3_namespace.url.startswith("s3://")  # the fixture has set the environment
    bucket = f"whole-{uuid.uuid4().hex[:12]}"
    s3_server.client().create_bucket(Bucket=bucket)
    with Lake(tmp_path / "sandbox", StoreLocation(f"s3://{bucket}")) as lake:
        yield lake.repository(namespace=f"s3://{bucket}")


def in_whole_bucket(spark: SparkSession, repository: LakeRepository) -> Collector:
    time.sleep(1.1)  # S3 has whole seconds: an object of this second is not older than the cutoff
    return Collector(spark, repository, safety=SafetyParameters(min_age_hours=0, allow_min_age_below_grace=True))


def test_the_root_of_a_whole_bucket_is_never_collected(spark: SparkSession, whole_bucket: LakeRepository) -> None:
    """One staged object there proves nothing about the other objects."""
    garbage = fill(whole_bucket)
    whole_bucket.stage("staged", "report.csv")
    mark = in_whole_bucket(spark, whole_bucket).collect_and_mark()
    assert marked(whole_bucket, mark) == garbage
    assert (mark.named_at_root, mark.not_lakefs) == ("", (1, len(ROOT[STATE])))
    [failed] = [check for check in mark.checks if not check.passed]
    assert (failed.name, failed.blocks_sweep) == ("only_names_of_lakefs", True)
    assert "the names of 1 marked objects, e.g. data/s/garbage. 2 marked objects are at the root" in failed.message


def test_marked_objects_at_the_root_of_a_whole_bucket_need_an_override_unless_the_repository_uses_the_root(
    spark: SparkSession, whole_bucket: LakeRepository
) -> None:
    """Other programs name files by MD5s, too. In a mark of lakeFS's own client as in one of lakefs-gc."""
    repository = whole_bucket
    repository.put("live")
    for path, key in (("chosen", "report.csv"), ("reserved", "dummy"), ("folder", f"other/{XID}")):
        repository.stage(path, key)
    repository.commit()
    images = [repository.put_stray(hashlib.md5(f"image {number}".encode()).hexdigest()) for number in range(3)]
    message = f"3 marked objects are at the root, e.g. {min(images)}, and the repository references no object there"
    collector = in_whole_bucket(spark, repository)
    ours = collector.collect_and_mark()
    assert marked(repository, ours) == set(images)
    write_client_mark(repository.store, UNIFIED, images, cutoff=utc_now())

    def of_client() -> tuple[Check, ...]:
        asking = in_whole_bucket(spark, repository)
        clients = asking.read_mark("m1")
        return ClientMarkChecks(asking.context).evaluate(asking.begin(), clients, Accepted.of(clients, ())).checks

    for checks in (ours.checks, of_client()):
        [failed] = [check for check in checks if check.name == "only_names_of_lakefs"]
        assert failed.blocks_sweep
        assert failed.message.startswith(message)

    repository.stage("old", repository.put_stray("0" * 32))
    assert "only_names_of_lakefs" not in failures(in_whole_bucket(spark, repository).collect_and_mark().checks)
    repository.commit()
    for checks in (in_whole_bucket(spark, repository).collect_and_mark().checks, of_client()):
        assert "only_names_of_lakefs" not in failures(checks)


def failures(checks: Sequence[Check]) -> dict[str, Answer]:
    return {check.name: check.answer for check in checks if not check.passed}


def test_candidates_of_an_older_version_without_counts_are_unknown(
    spark: SparkSession, whole_bucket: LakeRepository
) -> None:
    fill(whole_bucket)
    collector = in_whole_bucket(spark, whole_bucket)
    collector.collect()
    manifest = collector.manifest("candidates")
    older = replace(manifest, facts={name: fact for name, fact in manifest.facts.items() if name != "marked_at_root"})
    file = whole_bucket.lake.folder / "work" / collector.run_key / "candidates" / "manifest.json"
    file.write_bytes(older.sealed().to_json())
    assert failures(collector.mark().checks)["only_names_of_lakefs"] == Answer.UNKNOWN


def test_a_mark_with_unrecognized_names_is_not_swept(spark: SparkSession, repository: LakeRepository) -> None:
    """An old version of lakefs-gc, or lakeFS's own client, marks every object at the root."""
    garbage = fill(repository)
    before = repository.objects()
    collector = Collector(spark, repository)
    ours = collector.mark_objects(*garbage, *ROOT)
    assert ours.named_at_root
    older = replace(ours, run={name: value for name, value in ours.run.items() if name != "named_at_root"})
    write_client_mark(repository.store, UNIFIED, [*garbage, *ROOT], cutoff=utc_now() - timedelta(hours=24))
    clients = collector.read_mark("m1")
    assert not clients.is_ours
    for mark in (older, clients):
        with pytest.raises(MarkError, match=rf"Mark {mark.mark_id} has 2 objects at the root .* another application"):
            collector.sweep(mark, live=[])
    assert repository.objects() == before
    collector.sweep(clients, live=[], named_at_root="report.csv")
    assert repository.objects() == before - garbage - ROOT.keys()


def test_unrecognized_names_do_not_lower_the_shares_of_a_mark(spark: SparkSession, repository: LakeRepository) -> None:
    """The checks of shares count only objects of lakeFS."""
    garbage = fill(repository)
    for number in range(10):
        repository.put_stray(f"stranger-{number}", b"x" * 1000)
    safety = SafetyParameters(
        max_marked_share=0.5, share_counts_from_objects=0, share_counts_from_bytes=0, longest_commit_minutes=0
    )
    mark: Mark = Collector(spark, repository, safety=safety).collect_and_mark()
    assert mark.candidates == len(garbage)
    messages = {check.name: check.message for check in mark.checks if not check.passed}
    assert messages["share_of_objects"].startswith("3 of 4 objects")
    assert messages["share_of_bytes"].startswith("15 of 19 bytes")


def test_a_stage_of_an_older_version_without_counts_is_refused(spark: SparkSession, repository: LakeRepository) -> None:
    fill(repository)
    collector = Collector(spark, repository)
    collector.collect(until="kept")
    manifest = collector.manifest("unmatched")
    older = replace(manifest, facts={name: fact for name, fact in manifest.facts.items() if name != "not_lakefs"})
    file = repository.lake.folder / "work" / collector.run_key / "unmatched" / "manifest.json"
    file.write_bytes(older.sealed().to_json())
    with pytest.raises(InputOrderError, match=r"unmatched of run .* was written by an older version"):
        collector.materialize("candidates")


def test_references_are_read_if_a_listing_has_no_counts(spark: SparkSession, repository: LakeRepository) -> None:
    """A listing of an older version has no counts, which does not prove that no such name exists."""
    garbage = fill(repository)
    repository.stage("named", repository.put_stray("by hand"))
    collector = Collector(spark, repository)
    collector.collect(until="foreign_references")
    manifest = collector.manifest("store_listing")
    older = replace(manifest, facts={name: fact for name, fact in manifest.facts.items() if name != "strangers"})
    file = repository.lake.folder / "work" / collector.run_key / "store_listing" / "manifest.json"
    file.write_bytes(older.sealed().to_json())
    collector.materialize("unmatched", "missing", "kept", "candidates")
    assert collector.addresses("candidates") == {*garbage, *ROOT}
