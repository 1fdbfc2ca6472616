"""What a branch shows is kept, although lakeFS's uncommitted list leaves it out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.decide.shown import hidden_twins, value_filter
from lakefs_gc.engine.decide.shown.heads import HEAD_RANGES
from lakefs_gc.engine.decide.shown.hidden_twins import find_twins
from lakefs_gc.engine.decide.shown.lookups import ANY_SIZE, TwinSearch
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter
from lakefs_gc.engine.spark.compat import arrow_schema, known_table
from lakefs_gc.engine.spark.local_rows import local_rows, rows_of
from lakefs_gc.engine.workspace.range_cache import RangeCache
from lakefs_gc.formats.entry import AddressType, Entry, entry_identity
from lakefs_gc.formats.sstable.table_writer import write_range
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.collector import Collector, counts
from lakefs_gc_tests.support.lake import Lake, LakeRepository


def twin(repository: LakeRepository, path: str, *, branch: str = "main", content: str | None = None) -> str:
    """Overwrite a committed path with identical content; the key of the new object."""
    return repository.put(path, content, branch=branch)


def kept(collector: Collector) -> dict[str, str]:
    return {row["address"]: row["why"] for row in collector.dataset("kept").dataframe.collect()}


def test_what_a_branch_shows_is_kept(spark: SparkSession, repository: LakeRepository) -> None:
    for path in ("a", "b", "c"):
        repository.put(path)
    repository.commit()
    repository.branch("dev")
    repository.keep_days(10)
    first, second = twin(repository, "a"), twin(repository, "b", branch="dev")
    undone = twin(repository, "c")
    replaced = twin(repository, "c")
    repository.delete("c", branch="dev")
    same_size, other_size = repository.put_stray("data/s/x", b"x"), repository.put_stray("data/s/long", b"long")

    collector = Collector(spark, repository)
    collector.collect()
    assert not {first, second, replaced} & collector.addresses("uncommitted"), "the sandbox leaves them out, as lakeFS"
    assert kept(collector) == dict.fromkeys((first, second, replaced), "shown_by_a_branch")
    assert collector.addresses("candidates") == {undone, same_size, other_size}
    assert collector.manifest("kept").facts["shielded"] == 0


def test_a_branch_that_moves_while_the_run_is_under_way(spark: SparkSession, repository: LakeRepository) -> None:
    """The list left the object out by the old head; by the new one, of another size, nothing would look for it."""
    repository.put("a", "old")
    repository.commit()
    repository.keep_days(10)
    repository.put("moves")
    staged = twin(repository, "a", content="old")

    def move() -> None:
        repository.commit()
        repository.put("a", "of another size")
        repository.commit()

    collector = Collector(spark, repository)
    collector.collect(before={"kept": move})
    assert staged in collector.addresses("candidates"), "a commit leaves out what is no change, and it is gone"
    assert repository.read("a") == b"of another size"


def test_a_staged_object_outlives_the_head_that_hid_it(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a", "old")
    first = repository.commit()
    repository.branch("dev")
    repository.keep_days(10)
    staged = twin(repository, "a", content="old", branch="dev")
    collector = Collector(spark, repository)
    collector.collect(until="unmatched")
    search = TwinSearch(collector.context, collector.run, "twins", None)
    suspects = collector.dataset("unmatched").dataframe
    repository.delete_branch("dev")
    # Not at any head now, but it was when the server made its list.
    repository.branch("dev", first)
    other = twin(repository, "a", content="old", branch="dev")
    heads = dict(collector.server.branch_heads("lake"))

    def twins(*seen: dict[str, str]) -> set[str]:
        return {row["address"] for row in find_twins(suspects, seen, search).kept().collect()}

    assert twins({"dev": first}, heads) == set()
    suspects = spark.createDataFrame([(staged, 3), (other, 3)], "address string, size long")
    assert twins(heads) == {other}


def stage_with_wrong_size(repository: LakeRepository, key: str, content: bytes, size_bytes: int = 100) -> str:
    """Stage an object at path ``p`` with a size that is not its own, as a client may that compresses what it writes."""
    repository.put_stray(key, content)
    repository.stage("p", key, size_bytes=size_bytes, checksum="c")
    return key


@pytest.mark.parametrize(("content", "size_bytes"), [(b"12345", 100), (b"1234567", 100), (b"1234567", -1)])
def test_a_twin_of_an_object_whose_size_was_stated_wrong(
    spark: SparkSession, repository: LakeRepository, content: bytes, size_bytes: int
) -> None:
    stage_with_wrong_size(repository, "data/slice/one", b"12345", size_bytes)
    repository.commit()
    repository.keep_days(10)
    twin = stage_with_wrong_size(repository, "data/slice/two", content, size_bytes)
    garbage = repository.put_stray("data/slice/garbage", content)
    collector = Collector(spark, repository)
    collector.collect()
    assert twin not in collector.addresses("uncommitted")
    facts = collector.manifest("unmatched").facts
    assert (facts["wrong_sizes"], facts["size_bytes"]) == (1, 2 * len(content)), "the twin and the garbage"
    assert collector.addresses("candidates") == {garbage}
    assert collector.manifest("missing").rows == 0
    collector.sweep(collector.mark())
    assert repository.store.read(twin) == content


@pytest.mark.parametrize("workspace_is_lost", [False, True])
def test_such_a_twin_that_is_staged_after_the_mark(
    spark: SparkSession, repository: LakeRepository, tmp_path: Path, workspace_is_lost: bool
) -> None:
    stage_with_wrong_size(repository, "data/slice/one", b"12345")
    repository.commit()
    repository.keep_days(10)
    twin = repository.put_stray("data/slice/two", b"1234567")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert mark.candidates == 1
    if workspace_is_lost:
        other_work = repository.lake.settings.model_copy(update={"work_url": f"file://{tmp_path}/other-work"})
        collector = Collector(spark, repository, settings=other_work)
    repository.stage("p", twin, size_bytes=100, checksum="c")
    result = collector.sweep(mark)
    assert counts(result) == {"resurrected": 1}
    assert repository.store.read(twin) == b"1234567"


@pytest.mark.usefixtures("few_paths")
def test_too_many_entries_with_wrong_sizes(spark: SparkSession, repository: LakeRepository) -> None:
    for number in range(3):
        repository.put_stray(f"data/slice/{number}", b"12345")
        repository.stage(f"p/{number}", f"data/slice/{number}", size_bytes=100 + number)
    repository.commit()
    repository.keep_days(10)
    garbage = repository.put_stray("data/slice/garbage", b"1234567")

    def collect(max_lookups: int) -> Collector:
        collector = Collector(spark, repository, safety=SafetyParameters(max_twin_lookups=max_lookups))
        collector.collect()
        return collector

    assert collect(3).addresses("candidates") == {garbage}
    assert kept(collect(2)) == {garbage: "shielded"}


@pytest.mark.usefixtures("few_paths")
@pytest.mark.parametrize("where", ["local", "s3"])
def test_too_many_to_look_up(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, where: str) -> None:
    """By content first; what is still too much is kept, and counted."""
    store: StoreLocation | None = request.getfixturevalue("s3_namespace") if where == "s3" else None
    with Lake(tmp_path / "lake", store) as lake:
        repository = lake.repository()
        for number in range(6):
            repository.put(f"same/{number}", "123456")
        for number in range(10, 20):
            repository.put(f"other/{number}", f"size{number}")
        repository.commit()
        repository.keep_days(10)
        staged = [twin(repository, f"same/{number}", content="123456") for number in range(3)]
        garbage = repository.put_stray("data/s/of-other-content", b"abcdef")
        gone = repository.put("same/0", "654321")
        repository.delete("same/0")
        repository.put("same/0", "123456", age_hours=0)

        time.sleep(1.1)  # S3 tells whole seconds

        def collect(max_lookups: int) -> Collector:
            safety = SafetyParameters(max_twin_lookups=max_lookups, min_age_hours=0, allow_min_age_below_grace=True)
            collector = Collector(spark, repository, safety=safety)
            collector.collect()
            return collector

        # Sixteen paths have the size, six of them the content.  These are eleven contents.
        narrowed = collect(6)
        assert narrowed.manifest("twins_paths").rows == narrowed.manifest("twins_paths").facts["summed"] == 11
        assert narrowed.manifest("twins_paths_of_same_content").rows == 6
        assert set(kept(narrowed).values()) == {"shown_by_a_branch"}
        shown = set(kept(narrowed))
        assert set(staged[1:]) < shown
        assert len(shown) == 3
        assert narrowed.addresses("candidates") == {garbage, gone, staged[0]}
        too_many = collect(5)
        assert kept(too_many) == dict.fromkeys({*shown, staged[0]}, "shielded")
        assert too_many.addresses("candidates") == {garbage, gone}
        facts = too_many.manifest("kept").facts
        assert (facts["shielded"], facts["shielded_bytes"]) == (4, 24)


def test_a_path_without_an_answer_keeps_what_may_be_there(spark: SparkSession, repository: LakeRepository) -> None:
    """More paths than may be looked up one by one are answered by a page, but for one that the API cannot name."""
    for number in range(5):
        repository.put(f"same/{number}", "123456")
    repository.put("same/of-its-own", "987654")
    repository.put("odd\N{REPLACEMENT CHARACTER}", "654321")
    repository.commit()
    repository.keep_days(10)
    repository.delete("odd\N{REPLACEMENT CHARACTER}")
    garbage = repository.put_stray("data/s/of-other-content", b"abcdef")
    of_wrong_md5 = repository.put_stray("data/s/of-wrong-md5", b"ABCDEF")
    repository.stage("same/of-its-own", of_wrong_md5, size_bytes=6, checksum=hashlib.md5(b"987654").hexdigest())
    hidden = twin(repository, "same/0", content="123456")
    collector = Collector(spark, repository, safety=SafetyParameters(max_twin_lookups=3))
    collector.collect()
    assert kept(collector) == dict.fromkeys((hidden, of_wrong_md5), "shown_by_a_branch")
    assert collector.addresses("candidates") == {garbage}


@pytest.mark.usefixtures("few_paths")
def test_too_many_branches_to_look_up(spark: SparkSession, repository: LakeRepository) -> None:
    """Few paths, which many branches have: they are narrowed down as they are."""
    for number in range(3):
        repository.put(f"other/{number}", f"size-{number}")
    repository.put("same", "size-x")
    repository.commit()
    repository.keep_days(10)
    for number in range(4):
        repository.branch(f"b{number}")
    staged = [twin(repository, "same", branch=f"b{number}", content="size-x") for number in range(2)]
    garbage = repository.put_stray("data/s/of-other-content", b"abcdef")
    time.sleep(1.1)
    safety = SafetyParameters(max_twin_lookups=5, min_age_hours=0, allow_min_age_below_grace=True)
    collector = Collector(spark, repository, safety=safety)
    collector.collect()
    assert (collector.manifest("twins_paths").rows, collector.manifest("twins_paths").facts["summed"]) == (4, 0)
    assert collector.manifest("twins_paths_of_same_content").rows == 1
    assert kept(collector) == dict.fromkeys(staged, "shown_by_a_branch")
    assert collector.addresses("candidates") == {garbage}


class Heads:
    """Ranges in a folder, and what a worker finds in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "_lakefs").mkdir()
        self.rows: list[dict[str, str | None]] = []
        self.any_size: ValueFilter | None = None

    def range(self, *contents: tuple[str, int, str]) -> None:
        """Of path, size and ETag of each entry."""
        entries = [Entry(f"data/{path}", AddressType.RELATIVE, size, 0, e_tag) for path, size, e_tag in contents]
        table = write_range(
            [(path.encode(), entry_identity(e), e) for (path, *_), e in zip(contents, entries, strict=True)]
        )
        (self.folder / "_lakefs" / table.id).write_bytes(table.data)
        place = dict.fromkeys(("pack", "offset", "length", "digest"))
        self.rows.append({"store_url": f"file://{self.folder}/", "range_id": table.id, **place})

    def find(self, wanted: Sequence[tuple[int, str]] | Sequence[tuple[int]], *, most: int) -> list[dict[str, object]]:
        columns = [pa.array(column) for column in zip(*wanted, strict=True)]
        [bitmap] = value_filter._bitmap()(iter([pa.record_batch(columns, names=["size", "md5"][: len(columns)])]))
        passing = ValueFilter(("size", "md5")[: len(columns)], bitmap.column(0)[0].as_py())
        cache = RangeCache(StoreLocation(f"file://{self.folder}"), 0)
        read = hidden_twins._read_paths(cache, 1, passing, self.any_size, most)
        batches = list(read(iter([pa.RecordBatch.from_pylist(self.rows)])))
        return [row for batch in batches for row in batch.to_pylist()]


def test_paths_or_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker lists the paths of a size, contents when there are more, and the paths of a content again."""
    heads, md5 = Heads(tmp_path), [f"{number:032x}" for number in range(9)]
    for name in "abc":
        heads.range((f"{name}/1", 10, md5[1]), (f"{name}/2", 10, f'"{md5[2].upper()}"'), (f"{name}/3", 11, md5[3]))
    heads.range(("d/1", 10, "parts-2"), ("d/2", 12, md5[1]))

    def contents(found: list[dict[str, object]]) -> set[tuple[object, object]]:
        assert {(row["range_id"], row["path"]) for row in found} == {("", None)}
        return {(row["size"], row["md5"]) for row in found}

    def paths_of(found: list[dict[str, object]]) -> set[object]:
        assert len({row["path"] for row in found}) == len(found)
        return {row["path"] for row in found}

    paths = heads.find([(10,)], most=7)
    assert paths_of(paths) == {b"a/1", b"a/2", b"b/1", b"b/2", b"c/1", b"c/2", b"d/1"}
    assert {row["range_id"] for row in paths} == {row["range_id"] for row in heads.rows}
    of_size = {(10, md5[1]), (10, md5[2]), (10, "")}
    summed = heads.find([(10,)], most=6)
    assert contents(summed) == of_size
    assert len(summed) == 3
    monkeypatch.setattr(hidden_twins, "_ROWS_TO_SUM", 2)
    assert contents(heads.find([(10,)], most=0)) == of_size, "in windows, of which none is lost"
    assert paths_of(heads.find([(10, ""), (11, md5[1])], most=9)) == {b"d/1"}
    assert paths_of(heads.find([(10, md5[2]), (12, md5[1])], most=9)) == {b"a/2", b"b/2", b"c/2", b"d/2"}
    assert heads.find([(13,)], most=0) == []

    # Entries of 12 bytes may hide an object of any size.
    heads.any_size = value_filter.every_size()
    assert heads.find([(12,)], most=9) == []
    assert len(heads.find([(ANY_SIZE,)], most=20)) == 11
    assert contents(heads.find([(ANY_SIZE,)], most=1)) == {(ANY_SIZE, "")}
    heads.any_size = ValueFilter(("size",), bytes(1 << 21)).including(12)
    assert paths_of(heads.find([(ANY_SIZE,)], most=9)) == {b"d/2"}
    assert paths_of(heads.find([(ANY_SIZE, "")], most=9)) == {b"d/2"}


@pytest.mark.parametrize("seed", range(4))
def test_paths_of_metaranges_without_spark(spark: SparkSession, seed: int) -> None:
    """In a small run. Metaranges share ranges, a range may have no path, and a limit is exceeded for both or none."""
    random = Random(seed)
    ranges = pa.table([["m1", "m2", "m2", "m3", "m4"], ["a", "a", "b", "none", "b"]], schema=arrow_schema(HEAD_RANGES))
    found = [(random.choice("abc"), bytes([random.randrange(256)]), random.randrange(3), "") for _ in range(7)]
    paths = pa.table(list(zip(*found, strict=True)), schema=arrow_schema(hidden_twins._PATHS))
    here = rows_of(spark, ranges, HEAD_RANGES), rows_of(spark, paths, hidden_twins._PATHS)
    by_spark = here[0].where("true"), here[1].where("true")
    assert [known_table(rows) is None for rows in (*here, *by_spark)] == [False, False, True, True]

    def joined(rows: tuple[DataFrame, DataFrame], most_rows: int) -> list[tuple[object, ...]] | None:
        table = hidden_twins._joined(*rows, most_rows)
        return table and sorted(tuple(row[name] for name in columns) for row in table.to_pylist())

    columns = ("metarange_id", "range_id", "path", "size", "md5")
    expected = sorted(
        (metarange_id, *path)
        for metarange_id, range_id in zip(*ranges.to_pydict().values(), strict=True)
        for path in found
        if path[0] == range_id
    )
    for most_rows in (0, len(expected) - 1, len(expected), 100):
        result = expected if most_rows >= len(expected) else None
        assert joined(here, most_rows) == joined(by_spark, most_rows) == result


def test_without_paths_there_is_nothing_to_join(spark: SparkSession) -> None:
    table = hidden_twins._joined(local_rows(spark, [], HEAD_RANGES), local_rows(spark, [], hidden_twins._PATHS), 10)
    assert table is not None
    assert table.num_rows == 0
