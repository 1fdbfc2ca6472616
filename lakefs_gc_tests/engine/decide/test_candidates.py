"""What may be deleted, and inputs that prove nothing (rules 1, 3 and 4), up to the mark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.decide import missing as missing_stage
from lakefs_gc.engine.decide.matching import unmatched as unmatched_stage
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.history_index import HistoryIndex
from lakefs_gc.engine.workspace.workspace import StageOutput, utc_now
from lakefs_gc.errors import CorruptFileError, InputOrderError, SafetyError
from lakefs_gc.formats.commits_csv import write_active_commits
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import STAGES, Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy

OLD_LAYOUT = "4024870a35b7869697429ebc31187143"
"""A name at the root as lakeFS gave it."""


def test_what_nobody_refers_to(spark: SparkSession, repository: LakeRepository) -> None:
    expired = repository.put("expired")
    repository.commit(age_days=30)
    repository.delete("expired")
    kept = {repository.put("in-history")}
    repository.commit(age_days=20)
    repository.delete("in-history")
    kept |= {repository.put("at-head"), repository.put("late", age_hours=0)}
    repository.commit()
    overwritten = repository.put("staged", "first")
    kept |= {repository.put("staged"), repository.put("new", age_hours=23)}
    repository.delete("new")
    repository.keep_days(10)
    strays = {repository.put_stray(key, age_hours=25) for key in ("data/direct", OLD_LAYOUT, "data/s/a%2Fb ä+")}
    never = {"_lakefs/x", "_lakefs/y/z", "dummy", "other/x", "data2/x", "data/s/young"}
    for key in never:
        repository.put_stray(key, age_hours=0 if key.endswith("young") else 100)

    collector = Collector(spark, repository)
    collector.collect()
    rows = collector.dataset("candidates").dataframe.collect()
    assert len({row["address"] for row in rows}) == len(rows)
    reasons = {row["address"]: row["reason"] for row in rows}
    assert reasons == {expired: "expired", overwritten: "never_committed"} | dict.fromkeys(strays, "never_committed")
    facts = collector.manifest("candidates").facts
    assert facts["size_bytes"] == sum(row["size"] for row in rows)
    assert (facts["expired"], facts["expired_bytes"]) == (1, len("expired"))
    assert facts["cutoff"] == collector.run.cutoff.isoformat()
    # A question about one of them need not read what the run read.
    index = HistoryIndex.read(open_store(collector.workspace.range_cache.location), collector.run.known_folders)
    log = collector.server.log_page(repository.name, "main", after="", amount=100).commits
    assert {commit.meta_range_id for commit in log} - {""} == index.ranges_of.keys()


def test_an_object_committed_while_the_run_is_under_way_stays(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("first")
    repository.commit()
    repository.keep_days(10)
    repository.branch("dev")
    moving = {repository.put("moving"), repository.put("moving-later", branch="dev")}
    garbage = repository.put_stray("data/s/garbage")
    collector = Collector(spark, repository)
    collector.collect(before={"active_ranges": repository.commit, "committed": lambda: repository.commit(branch="dev")})
    assert collector.addresses("uncommitted") == moving
    assert len(collector.addresses("committed") & moving) == 1
    assert collector.addresses("candidates") == {garbage}


def test_read_the_other_way_round_the_inputs_are_refused(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("first")
    repository.commit()
    repository.keep_days(10)
    moving = repository.put("moving")
    collector = Collector(spark, repository)
    collector.collect(until="committed")
    repository.commit()
    collector.materialize("uncommitted", "foreign_references")
    assert moving not in collector.addresses("committed") | collector.addresses("uncommitted")
    with pytest.raises(InputOrderError, match=r"active_ranges of .* began .* before uncommitted had ended"):
        collector.materialize("unmatched")


@dataclass(frozen=True)
class Inputs:
    """A finished run whose manifests a test may change."""

    collector: Collector
    manifests: dict[str, DatasetManifest]

    def make(self, made: str) -> object:
        return self.collector.mark() if made == "mark" else self.collector.output(made)

    def put(self, stage: str, manifest: DatasetManifest | None) -> None:
        store, key = self.collector.workspace._store(), f"{self.collector.run_key}/{stage}/manifest.json"
        if manifest is None:
            store.delete_many([key])
        else:
            store.put(key, manifest.sealed().to_json())


@pytest.fixture(scope="module")
def inputs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inputs]:
    with Lake(tmp_path_factory.mktemp("lake")) as lake:
        repository = lake.repository()
        repository.put("a")
        repository.commit()
        collector = Collector(spark, repository)
        collector.collect()
        yield Inputs(collector, {stage: collector.manifest(stage) for stage in STAGES})


def earlier(manifest: DatasetManifest) -> DatasetManifest:
    return replace(manifest, began_at=manifest.began_at - timedelta(minutes=5))


def again(manifest: DatasetManifest) -> DatasetManifest:
    return replace(manifest, materialization_id="another")


def of_another_run(manifest: DatasetManifest) -> DatasetManifest:
    return replace(manifest, run_key="lake/another")


def gone(manifest: DatasetManifest) -> None:
    """The stage did not end."""


INPUTS_OF = {
    "unmatched": ("store_listing", "uncommitted", "active_ranges", "committed", "foreign_references"),
    "missing": ("uncommitted", "committed", "unmatched"),
    "kept": ("uncommitted", "unmatched"),
    "candidates": ("store_listing", "active_ranges", "unmatched", "kept"),
    "mark": tuple(stage for stage in STAGES if stage != "unmatched"),
}
MADE_FROM = [
    ("unmatched", "committed", "active_ranges"),
    ("unmatched", "active_ranges", "uncommitted"),
    ("missing", "unmatched", "uncommitted"),
    ("missing", "unmatched", "committed"),
    ("kept", "unmatched", "uncommitted"),
    ("candidates", "unmatched", "store_listing"),
    ("candidates", "unmatched", "active_ranges"),
    ("candidates", "kept", "unmatched"),
    *(("mark", "candidates", stage) for stage in STAGES[:5]),
    ("mark", "candidates", "kept"),
]
"""What a stage sees: that one of its inputs was made from this materialization of another."""

CHANGES: list[tuple[str, str, Callable[[DatasetManifest], DatasetManifest | None], str]] = [
    *(
        (made, stage, earlier, f"{stage} of .* began .* before")
        for made, stages in INPUTS_OF.items()
        for stage in stages[1:]
    ),
    *(
        (made, earlier_one, again, f"{later} was made from another materialization of {earlier_one}")
        for made, later, earlier_one in MADE_FROM
    ),
    *(
        (made, stage, of_another_run, f"this is the manifest of stage {stage} of run lake/another")
        for made, stages in INPUTS_OF.items()
        for stage in stages
        if stage != "store_listing"  # the run is what its listing says
    ),
    *(
        (made, stage, gone, f"{stage} of run .* does not exist, or was not finished")
        for made, stages in INPUTS_OF.items()
        for stage in stages
    ),
]


@pytest.mark.parametrize(
    ("made", "stage", "change", "message"), CHANGES, ids=[f"{c[0]}-{c[1]}-{c[2].__name__}" for c in CHANGES]
)
def test_inputs_that_do_not_fit_are_refused(
    inputs: Inputs, made: str, stage: str, change: Callable[[DatasetManifest], DatasetManifest | None], message: str
) -> None:
    inputs.put(stage, change(inputs.manifests[stage]))
    try:
        with pytest.raises((InputOrderError, CorruptFileError), match=message):
            inputs.make(made)
    finally:
        inputs.put(stage, inputs.manifests[stage])
    if change is earlier:
        inputs.make(made)  # they fit as they are


def test_an_empty_committed_set_is_no_proof(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    """The server lists every head, but says that they have no content; and too many commits to compare with its log."""
    repository.put("a")
    repository.commit()
    repository.keep_days(10)

    def empty(asked: Asked, answer: Answered) -> Answered:
        if answer.json["completed"]:
            file = answer.json["result"]["gc_commits_location"].removeprefix(repository.namespace)
            lines = repository.store.read(file).decode().splitlines()[1:]
            repository.store.put(file, write_active_commits((line.partition(",")[0], "") for line in lines))
        return answer

    proxy.instead("/gc/prepare_commits/status", empty)
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server, safety=SafetyParameters(max_commits=1))
    collector.collect(until="foreign_references")
    assert collector.manifest("committed").rows == 0
    with pytest.raises(SafetyError, match="No committed object was read in repository lake, but branch main has"):
        collector.output("unmatched")


def test_a_repository_that_is_really_empty(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit(age_days=30)
    repository.delete("a")
    repository.commit(age_days=20)
    repository.commit(age_days=15, allow_empty=True)
    repository.keep_days(10)
    collector = Collector(spark, repository)
    collector.collect()
    assert collector.manifest("committed").rows == 0
    assert [row["reason"] for row in collector.dataset("candidates").dataframe.collect()] == ["expired"]


def test_without_rules_nothing_that_was_ever_committed(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit(age_days=900)
    repository.delete("a")
    repository.commit(age_days=800)
    garbage = repository.put("b")
    repository.delete("b")
    collector = Collector(spark, repository)
    collector.collect()
    assert [(row["address"], row["reason"]) for row in collector.dataset("candidates").dataframe.collect()] == [
        (garbage, "never_committed")
    ]
    assert collector.manifest("active_ranges").facts["mode"] == "all_commits"


def test_only_what_can_be_garbage_whatever_the_listing_says(spark: SparkSession, inputs: Inputs) -> None:
    """The second line of defence of rule 4: a listing that went astray."""
    collector, old = inputs.collector, utc_now() - timedelta(days=9)
    bad = ["_lakefs/x", "dummy", "other/x", "data/../x", "data//x", "../x", "data/", "/x", "data/x/."]
    astray = [(address, 1, old) for address in [*bad, "data/s/x", OLD_LAYOUT]]
    listing = StageOutput(
        spark.createDataFrame(astray, schemas.STORE_LISTING),
        inputs.manifests["store_listing"].began_at,
        inputs.manifests["store_listing"].facts,
    )
    written = collector.workspace.write(spark, collector.run_key, "store_listing", listing)
    of_run = inputs.manifests["store_listing"]
    inputs.put("store_listing", replace(of_run, rows=written.rows, files=written.files, footers=written.footers))
    collector.materialize("unmatched")
    rows = collector.dataset("unmatched").dataframe.collect()
    assert {row["address"] for row in rows if row["found_in"] == "store"} == {"data/s/x", OLD_LAYOUT}


def test_parts_of_uploads_that_may_be_under_way(spark: SparkSession, repository: LakeRepository) -> None:
    """No list has them; where the store is a folder, lakeFS would join what is left of them to an object."""
    upload = "0123456789abcdef" * 2
    parts = [f"{upload}-00001", "data/s/x.part_00001", "data/s/x.multipart", "data/s/x_id", f"{upload}_size"]
    others = [upload, "data/s/y.part_1", "data/s/z.multipart.x", "data/s/size"]
    for key in [*parts, *others]:
        repository.put_stray(key, age_hours=5 * 24)
    repository.put_stray(f"{upload}-00002", age_hours=9 * 24)
    collector = Collector(spark, repository)
    collector.collect()
    assert collector.addresses("candidates") == {*others, f"{upload}-00002"}


def every_hash_the_same(column: str) -> Column:
    return F.lit(7).cast("long").alias("address_hash")


def a_few_hashes(column: str) -> Column:
    return (F.length(column) % 5).cast("long").alias("address_hash")


@pytest.mark.parametrize("worse_hash", [every_hash_the_same, a_few_hashes])
def test_addresses_of_one_hash_can_only_keep_an_object(
    spark: SparkSession,
    repository: LakeRepository,
    monkeypatch: pytest.MonkeyPatch,
    worse_hash: Callable[[str], Column],
) -> None:
    live = {repository.put("a"), repository.put("b"), repository.put_stray("data/s/staged")}
    repository.stage("staged", "data/s/staged")
    repository.commit()
    garbage = {repository.put_stray(key) for key in ("data/s/x", "data/s/staged-", OLD_LAYOUT)}
    repository.keep_days(10)
    collector = Collector(spark, repository)
    collector.collect(until="foreign_references")
    collector.materialize("unmatched", "missing", "kept", "candidates")
    assert collector.addresses("candidates") == garbage
    for module in (unmatched_stage, missing_stage):
        monkeypatch.setattr(module, "address_hash", worse_hash)
    collector.materialize("unmatched", "missing", "kept", "candidates")
    assert collector.addresses("candidates") < garbage
    assert not collector.addresses("candidates") & live


def test_each_side_is_shuffled_once(spark: SparkSession, inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmatched_stage, "_ROWS_PER_PIECE", 1)
    # As on a cluster. Otherwise nothing of this run is left for Spark to join.
    monkeypatch.setattr(
        unmatched_stage, "without_matched", lambda context, run, listing, references: (listing, references)
    )
    frame = inputs.collector.output("unmatched").dataframe
    frame.collect()
    executed = frame._jdf.queryExecution().executedPlan().toString().partition("Initial Plan")[0]
    assert executed.count("Exchange hashpartitioning(address_hash") == executed.count("Exchange") == 2, executed
    assert "SortMergeJoin" in executed, "the one that spills"
