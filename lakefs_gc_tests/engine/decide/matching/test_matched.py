"""What is left out before the join of ``unmatched`` changes none of its rows, and never uncovers a live object."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import Settings
from lakefs_gc.engine.collect.listing.foreign_names import UNRECOGNIZED
from lakefs_gc.engine.decide.matching import address_table, matched
from lakefs_gc.engine.decide.matching import unmatched as stage
from lakefs_gc.engine.decide.matching.address_table import AddressTable
from lakefs_gc.engine.decide.matching.unmatched import unmatched
from lakefs_gc.engine.run import GCRun, RunContext, ServerIdentity
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import to_arrow
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, Workspace
from lakefs_gc.errors import CorruptFileError
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.no_server import no_server
from lakefs_gc_tests.support.scaled_spark import ScaledSpark

NOW = datetime(2026, 6, 1, tzinfo=UTC)
RUN_KEY = "repository/1"
ADDRESSES = 300
Row = tuple[Any, ...]


@dataclass
class Repository:
    """Listed objects and what refers to them: many combinations, in stages of a workspace."""

    spark: SparkSession
    folder: Path
    seed: int
    is_small: bool
    hours: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        chosen = random.Random(self.seed)
        addresses = [f"data/{'x' * chosen.randrange(1, 20)}/é{n}" for n in range(ADDRESSES)]
        old, new = NOW - timedelta(days=9), NOW + timedelta(days=9)
        self.listed = {
            address: (address, chosen.randrange(3), chosen.choice((old, new)))
            for address in addresses
            if chosen.random() < 0.8
        }
        sizes = {address: self.listed[address][1] if address in self.listed else 7 for address in addresses}
        self.entries = [
            (address, sizes[address] if chosen.random() < 0.9 else chosen.randrange(-2, 3), old)
            for address in chosen.choices(addresses, k=ADDRESSES)
        ]
        self.staged = [(address,) for address in chosen.choices(addresses, k=ADDRESSES // 5)]
        self.imported = [(address, "other") for address in chosen.choices(addresses, k=ADDRESSES // 10)]

    @property
    def garbage(self) -> set[str]:
        """The objects that no reference names."""
        return self.listed.keys() - {row[0] for row in (*self.entries, *self.staged, *self.imported)}

    def context(self) -> RunContext:
        compute = ScaledSpark(self.spark, 2, self.is_small)
        compute.scale(self.is_small)
        workspace = Workspace(self.folder.as_uri())
        return RunContext(compute, no_server, Settings(), workspace, lambda: NOW, open_store)

    def stages(self, context: RunContext) -> dict[str, Dataset]:
        listing = self._keep(context, "store_listing", list(self.listed.values()))
        staged = self._keep(context, "uncommitted", self.staged)
        ranges = self._keep(context, "active_ranges", [("f" * 64, 1)], uncommitted=staged)
        entries = self._keep(context, "committed", self.entries, active_ranges=ranges)
        imported = self._keep(context, "foreign_references", self.imported)
        return {
            "listing": listing,
            "uncommitted": staged,
            "active_ranges": ranges,
            "committed": entries,
            "foreign_references": imported,
        }

    def _keep(self, context: RunContext, stage: str, rows: Sequence[Row], **inputs: Dataset) -> Dataset:
        schema = schemas.BY_STAGE[stage]
        begin = NOW + timedelta(hours=next(self.hours))
        context = RunContext(
            context.compute,
            no_server,
            Settings(),
            Workspace(self.folder.as_uri(), lambda: begin),
            lambda: begin,
            open_store,
        )
        output = StageOutput(
            local_rows(self.spark, rows, schema).repartition(3),
            begin,
            {"mode": "rules", UNRECOGNIZED: 0},
            inputs={name: dataset.manifest.materialization_id for name, dataset in inputs.items()},
        )
        return context.workspace.keep(self.spark, RUN_KEY, stage, output, schema)

    def unmatched(self) -> tuple[Counter[Row], dict[str, Any]]:
        """Return the rows of ``unmatched``, and its facts."""
        context = self.context()
        output = unmatched(context, a_run(), **self.stages(context))
        rows = context.workspace.keep(self.spark, RUN_KEY, "unmatched", output, schemas.UNMATCHED)
        table = to_arrow(rows.dataframe)
        return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True)), dict(rows.manifest.facts)


def a_run() -> GCRun:
    return GCRun(
        RUN_KEY, "repository", "local://x/", StoreLocation("file:///"), NOW, NOW, 0, 0, "1", ServerIdentity("", "")
    )


@pytest.fixture(params=["small", "executors"])
def is_small(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "small")


def unreferenced(rows: Counter[Row]) -> set[str]:
    return {row[0] for row in rows if row[3] in {schemas.STORE, schemas.NEWER}}


@pytest.mark.parametrize("seed", range(2))
def test_the_rows_are_those_of_the_whole_join(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_small: bool, seed: int
) -> None:
    repository = Repository(spark, tmp_path / "here", seed, is_small)
    handed_over: list[int] = []
    real = matched.without_matched

    def watched(context: RunContext, run: GCRun, listing: Dataset, references: Sequence[Dataset]) -> Any:
        objects, left = real(context, run, listing, references)
        handed_over.extend(dataset.manifest.rows for dataset in (objects, *left))
        return objects, left

    monkeypatch.setattr(stage, "without_matched", watched)
    rows, facts = repository.unmatched()

    monkeypatch.setattr(stage, "without_matched", lambda context, run, listing, references: (listing, references))
    whole, whole_facts = Repository(spark, tmp_path / "spark", seed, is_small).unmatched()
    assert rows == whole
    assert facts == whole_facts
    old_garbage = {address for address in repository.garbage if repository.listed[address][2] < NOW}
    assert unreferenced(rows) == old_garbage
    assert facts["newer"] == len(repository.garbage) - len(old_garbage) > 0
    assert facts["wrong_sizes"] > 0
    assert facts["not_in_store"] > 0
    # Only what is unreferenced, missing or of another size went to Spark.
    wrong = {row[0] for row in rows if row[3] == schemas.WRONG_SIZE}
    assert handed_over[0] == len(repository.garbage | wrong)
    absent_or_wrong = sum(row[0] in wrong or row[0] not in repository.listed for row in repository.entries)
    assert handed_over[1] == absent_or_wrong


@pytest.mark.parametrize("broken", ["hashes collide", "references are forgotten", "everything is found"])
def test_a_broken_table_uncovers_no_live_object(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_small: bool, broken: str
) -> None:
    if broken == "hashes collide":
        real = address_table.hashes_of
        monkeypatch.setattr(address_table, "hashes_of", lambda addresses, seed: real(addresses) % np.uint64(40))
    elif broken == "references are forgotten":
        add = AddressTable.add
        monkeypatch.setattr(
            AddressTable, "add", lambda table, hashes, sizes: add(table, hashes[::2], sizes and sizes.take(even(sizes)))
        )
    else:
        monkeypatch.setattr(AddressTable, "find", lambda table, hashes, sizes: np.zeros(len(hashes), np.bool_))
    repository = Repository(spark, tmp_path, 1, is_small)
    rows, _ = repository.unmatched()
    assert unreferenced(rows) <= repository.garbage
    if broken == "references are forgotten":
        old = {address for address in repository.garbage if repository.listed[address][2] < NOW}
        assert unreferenced(rows) == old


def even(values: pa.Array) -> pa.Array:
    return pa.array(range(0, len(values), 2))


def test_a_stage_that_lost_rows_is_refused(spark: SparkSession, tmp_path: Path, is_small: bool) -> None:
    repository = Repository(spark, tmp_path, 1, is_small)
    context = repository.context()
    stages = repository.stages(context)
    file = next(tmp_path.glob(f"{RUN_KEY}/committed/data/*.parquet"))
    whole = pq.read_table(file)
    for rows, number in ((whole.slice(1), r"299"), (pa.concat_tables([whole, whole]), r"\d{3}")):
        pq.write_table(rows, file)
        message = "another content" if is_small else rf"repository/1/committed: .* with 300 rows, and has {number}"
        with pytest.raises(CorruptFileError, match=message):
            unmatched(context, a_run(), **stages)


@pytest.mark.parametrize("limit", ["_MOST_REFERENCES", "_MOST_REFERENCES_LEFT"])
def test_spark_compares_what_is_too_much(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_small: bool, limit: str
) -> None:
    rows, _ = Repository(spark, tmp_path / "here", 1, is_small).unmatched()
    monkeypatch.setattr(matched, limit, 1)
    repository = Repository(spark, tmp_path / "spark", 1, is_small)
    context = repository.context()
    stages = repository.stages(context)
    references = [stages[name] for name in ("committed", "uncommitted", "foreign_references")]
    assert matched.without_matched(context, a_run(), stages["listing"], references) == (stages["listing"], references)
    assert Repository(spark, tmp_path / "again", 1, is_small).unmatched()[0] == rows


def test_a_cluster_compares_by_itself(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matched, "is_local", lambda session: False)
    repository = Repository(spark, tmp_path, 1, False)
    context = repository.context()
    stages = repository.stages(context)
    references = [stages["committed"]]
    assert matched.without_matched(context, a_run(), stages["listing"], references) == (stages["listing"], references)
