"""The server's list of uncommitted addresses is complete, or the run fails (rule 3)."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references import uncommitted
from lakefs_gc.engine.collect.references.uncommitted import PreparedUncommitted, _read_files, prepare_uncommitted
from lakefs_gc.errors import (
    CorruptFileError,
    IncompleteAnswerError,
    LakeFSGCError,
    NamespaceError,
    RepositoryNotFoundError,
)
from lakefs_gc.formats.uncommitted_parquet import write_uncommitted
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import UncommittedPage
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository, keys_below
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy, refusal

PREPARE = "/gc/prepare_uncommited"
PAGES = 4


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A server that writes one address on each page."""
    return Lake(tmp_path / "lake", options=SandboxOptions(uncommitted_page_bytes=1))


@pytest.fixture
def repository(lake: Lake) -> Iterator[LakeRepository]:
    """Four staged addresses on two branches."""
    with lake:
        repository = lake.repository()
        repository.put("committed")
        repository.commit()
        for number in range(PAGES - 1):
            repository.put(f"staged-{number}")
        repository.branch("dev")
        repository.put("staged-elsewhere", branch="dev")
        yield repository


def server_at(lake: Lake, url: str) -> LakeFSClient:
    return LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": url}))


def test_every_page_is_read(spark: SparkSession, repository: LakeRepository) -> None:
    staged = {stats.physical_address for branch in ("main", "dev") for stats in staged_objects(repository, branch)}
    collector = Collector(spark, repository)
    collector.materialize("store_listing", "uncommitted")
    assert collector.addresses("uncommitted") == {address.removeprefix("local://lake/") for address in staged}
    facts = collector.manifest("uncommitted").facts
    assert (facts["pages"], facts["files"], len(staged)) == (PAGES, PAGES, PAGES)
    assert facts["run_id"]


def test_the_facts_include_the_duration_of_the_servers_work(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = LakeFSClient.prepare_uncommitted

    def slowly(server: LakeFSClient, *arguments: Any) -> UncommittedPage:
        time.sleep(0.2)
        return prepare(server, *arguments)

    monkeypatch.setattr(LakeFSClient, "prepare_uncommitted", slowly)
    collector = Collector(spark, repository)
    collector.materialize("store_listing", "uncommitted")
    assert 0.2 * PAGES <= collector.manifest("uncommitted").facts["server_seconds"] < 30


def staged_objects(repository: LakeRepository, branch: str) -> list[Any]:
    listed = repository.lake.client.objects_api.list_objects(repository.name, branch).results
    return [stats for stats in listed if stats.path.startswith("staged")]


def test_without_staged_entries_there_is_one_page_without_a_file(spark: SparkSession, tmp_path: Path) -> None:
    with Lake(tmp_path / "empty") as lake:
        collector = Collector(spark, lake.repository())
        collector.materialize("store_listing", "uncommitted")
    manifest = collector.manifest("uncommitted")
    assert (manifest.rows, manifest.facts["pages"], manifest.facts["files"]) == (0, 1, 0)


def gone_while_listed(repository: LakeRepository, *branches: str) -> Callable[[Asked, Answered], Answered | None]:
    """Answer as lakeFS does when a branch is deleted while it lists: the last page, without its file."""
    left = list(branches)

    def spoil(asked: Asked, answer: Answered) -> Answered | None:
        if not left:
            return None
        repository.delete_branch(left.pop(0))
        return answer.with_json(gc_uncommitted_location="", continuation_token="")

    return spoil


def test_the_list_is_repeated_if_a_branch_was_deleted_meanwhile(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        proxy.instead(PREPARE, gone_while_listed(repository, "dev"))
        collector = Collector(spark, repository, server=server_at(lake, proxy.url))
        collector.materialize("store_listing", "uncommitted")
        facts = collector.manifest("uncommitted").facts
        assert (facts["pages"], list(facts["heads"])) == (PAGES - 1, ["main"])
        assert proxy.count(PREPARE) == PAGES


def test_if_a_branch_is_deleted_during_each_list_others_are_read_one_by_one(
    spark: SparkSession, lake: Lake, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uncommitted, "is_local", lambda _: False)
    monkeypatch.setattr(uncommitted, "spellings", lambda namespace, _: (namespace,))
    staged = {stats.physical_address for branch in ("main", "dev") for stats in staged_objects(repository, branch)}
    branches = [f"b{number}" for number in range(5)]
    for branch in branches:
        repository.branch(branch)
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        proxy.instead(PREPARE, gone_while_listed(repository, *branches))
        collector = Collector(spark, repository, server=server_at(lake, proxy.url))
        collector.materialize("store_listing", "uncommitted")
        assert proxy.count(PREPARE) == 5
    assert collector.addresses("uncommitted") == {address.removeprefix("local://lake/") for address in staged}


def test_without_any_list_there_is_no_answer(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        repository.branch(f"b{number}")

    def gone(*_: object) -> None:
        repository.delete_branch(repository.lake.client.branches_api.list_branches("lake").results[0].id)
        raise RepositoryNotFoundError("lake")

    monkeypatch.setattr(uncommitted, "prepare_uncommitted", gone)
    collector = Collector(spark, repository)
    collector.materialize("store_listing")
    with pytest.raises(IncompleteAnswerError, match="ended none of these lists"):
        collector.materialize("uncommitted")


@pytest.mark.parametrize("is_whole_list", [True, False])
@pytest.mark.parametrize("is_back", [False, True])
def test_a_page_without_a_file_is_noticed_although_no_branch_is_missing(
    spark: SparkSession,
    lake: Lake,
    repository: LakeRepository,
    monkeypatch: pytest.MonkeyPatch,
    is_back: bool,
    is_whole_list: bool,
) -> None:
    """The branch was created after the heads were read and then deleted, or it was deleted and created again."""
    # As for stores that are not local: the branches of a local store are always read.
    monkeypatch.setattr(uncommitted, "is_local", lambda _: False)
    monkeypatch.setattr(uncommitted, "spellings", lambda namespace, _: (namespace,))
    if is_back:
        repository.branch("run")

    def omit_the_file(asked: Asked, answer: Answered) -> Answered | None:
        if not is_whole_list and asked.number != PAGES - 1:
            return None
        if is_back:
            repository.delete_branch("run")
        repository.branch("run")
        if not is_back:
            repository.delete_branch("run")
        token = "" if is_whole_list else answer.json["continuation_token"]
        return answer.with_json(gc_uncommitted_location="", continuation_token=token)

    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        proxy.instead(PREPARE, omit_the_file)
        collector = Collector(spark, repository, server=server_at(lake, proxy.url))
        collector.materialize("store_listing", "uncommitted")
    staged = {str(stats.physical_address) for b in ("main", "dev") for stats in staged_objects(repository, b)}
    assert collector.addresses("uncommitted") == {url.removeprefix(repository.namespace) for url in staged}
    assert len(staged) == PAGES


def test_only_branches_that_a_page_without_a_file_covers_are_read(lake: Lake, repository: LakeRepository) -> None:
    server = server_at(lake, lake.credentials.endpoint_url)
    repository.branch("zebra")
    whole = prepare_uncommitted(server, "lake", 100)
    to_main = base64.b64encode(b'{"branch":"main","path":"x"}').decode()
    for spans, forgotten in (
        ((), set()),
        ((("", ""),), {"dev", "main", "zebra"}),
        ((("", to_main),), {"dev", "main"}),
        (((to_main, ""),), {"main", "zebra"}),
        (((to_main, to_main),), {"main"}),
        ((("not base64", "bm90IGpzb24="),), {"dev", "main", "zebra"}),
    ):
        assert uncommitted._forgotten(server, "lake", replace(whole, without_file=spans)) == forgotten


def test_the_list_is_repeated_if_its_last_branch_was_deleted(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        gone: list[str] = []

        def spoil(asked: Asked, answer: Answered) -> Answered | None:
            if gone:
                return None
            gone.append("dev")
            repository.delete_branch("dev")
            return refusal(404)

        proxy.instead(PREPARE, spoil)
        collector = Collector(spark, repository, server=server_at(lake, proxy.url))
        collector.materialize("store_listing", "uncommitted")
        assert collector.manifest("uncommitted").facts["pages"] == PAGES - 1


@pytest.mark.parametrize("listed", [[], [{"id": "dev", "commit_id": "c"}]], ids=["empty", "another"])
def test_a_list_without_the_default_branch_is_refused(
    spark: SparkSession, lake: Lake, repository: LakeRepository, listed: list[dict[str, str]]
) -> None:
    """What a branch shows is not looked up if the branch is not listed."""
    pagination = {"has_more": False, "next_offset": "", "results": len(listed), "max_per_page": 1000}
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        proxy.instead("/branches", lambda asked, answer: answer.with_json(results=listed, pagination=pagination))
        collector = Collector(spark, repository, server=server_at(lake, proxy.url))
        with pytest.raises(IncompleteAnswerError, match="branches of lake, but not main"):
            collector.materialize("store_listing", "uncommitted")


def later(**fields: str) -> Callable[[Asked, Answered], Answered | None]:
    """Change fields of every page except the first."""
    return lambda asked, answer: answer.with_json(**fields) if asked.number > 1 else None


def first_token_on_every_page() -> Callable[[Asked, Answered], Answered]:
    tokens: list[str] = []

    def spoil(asked: Asked, answer: Answered) -> Answered:
        tokens.append(answer.json["continuation_token"])
        return answer.with_json(continuation_token=tokens[0])

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (first_token_on_every_page(), r"does not advance: page 2 repeats a continuation token"),
        (later(run_id="another"), "changed the run of its uncommitted list"),
        (later(gc_uncommitted_location="local://lake/_lakefs/elsewhere/"), "is in two folders"),
    ],
)
def test_an_inconsistent_list_is_refused(
    lake: Lake, repository: LakeRepository, spoil: Callable[[Asked, Answered], Answered | None], message: str
) -> None:
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        proxy.instead(PREPARE, spoil)
        with pytest.raises(IncompleteAnswerError, match=message):
            prepare_uncommitted(server_at(lake, proxy.url), "lake", 100)


def test_a_repeated_token_is_refused(lake: Lake, repository: LakeRepository) -> None:
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        first = prepare_uncommitted(server_at(lake, lake.credentials.endpoint_url), "lake", 100)
        page = Answered(201, b"{}").with_json(run_id="r", gc_uncommitted_location="", continuation_token="")
        tokens = ["a", "b", "c", "a"]
        proxy.fail(PREPARE, *(page.with_json(continuation_token=token) for token in tokens))
        with pytest.raises(IncompleteAnswerError, match="page 4 repeats a continuation token"):
            prepare_uncommitted(server_at(lake, proxy.url), "lake", 100)
    assert first == replace(first, pages=PAGES, pages_with_file=PAGES)


def test_a_list_with_more_pages_than_the_limit_is_refused(lake: Lake, repository: LakeRepository) -> None:
    server = server_at(lake, lake.credentials.endpoint_url)
    assert isinstance(prepare_uncommitted(server, "lake", PAGES), PreparedUncommitted)
    with pytest.raises(IncompleteAnswerError, match=f"not finished after {PAGES - 1} pages"):
        prepare_uncommitted(server, "lake", PAGES - 1)


def cut_short(repository: LakeRepository, file: str) -> None:
    repository.store.put(file, repository.store.read(file)[:-20])


def remove(repository: LakeRepository, file: str) -> None:
    repository.store.delete_many([file])


Damage = Callable[[LakeRepository, str], None]


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (cut_short, CorruptFileError, "not a complete Parquet file"),
        (remove, IncompleteAnswerError, f"has {PAGES - 1} files, but the server wrote {PAGES} pages"),
    ],
)
def test_a_truncated_or_missing_file_is_refused(
    spark: SparkSession,
    lake: Lake,
    repository: LakeRepository,
    damage: Damage,
    error: type[LakeFSGCError],
    message: str,
) -> None:
    def damage_first(asked: Asked, answer: Answered) -> Answered:
        if not answer.json.get("continuation_token"):  # the last page
            folder = answer.json["gc_uncommitted_location"].removeprefix(repository.namespace)
            damage(repository, min(keys_below(repository.store, folder)))
        return answer

    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        proxy.instead(PREPARE, damage_first)
        collector = Collector(spark, repository, server=server_at(lake, proxy.url))
        collector.materialize("store_listing")
        with pytest.raises(error, match=message):
            collector.materialize("uncommitted")


@pytest.mark.parametrize("location", ["local://lake-2/_lakefs/x/", "local://lake/../other/_lakefs/x/"])
def test_a_folder_outside_the_namespace_is_refused(
    spark: SparkSession, lake: Lake, repository: LakeRepository, location: str
) -> None:
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        proxy.instead(PREPARE, lambda asked, answer: answer.with_json(gc_uncommitted_location=location))
        collector = Collector(spark, repository, server=server_at(lake, proxy.url))
        collector.materialize("store_listing")
        with pytest.raises(NamespaceError):
            collector.materialize("uncommitted")


def test_an_address_is_also_read_as_a_path(spark: SparkSession, repository: LakeRepository) -> None:
    """``s3://bucket/repo//data/a`` is listed as ``/data/a``, but SeaweedFS lists ``data/a``."""
    page = pa.record_batch(
        [["/data/s/a", "data//s/b", "data/s/c", "data/../../repo/data/s/d", "data/./s/e"], [1] * 5],
        names=["physical_address", "creation_date"],
    )
    run = Collector(spark, repository).begin()
    content = write_uncommitted(page)
    open_store(run.store).put("page.parquet", content)
    file = pa.record_batch([["page.parquet"], [len(content)]], names=["file", "size_bytes"])
    batches = _read_files(run.store, "s3://b/repo/")(iter([file]))
    read = {row for batch in batches for row in batch["address"].to_pylist()}
    assert read >= {"/data/s/a", "data//s/b", "data/./s/e", *(f"data/s/{name}" for name in "abcde")}


def test_a_page_with_the_content_of_another_is_refused(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a proxy sends an answer twice. Each page is whole by itself."""
    repository.stage("linked", repository.put_stray("data/s/short"), size_bytes=5)
    collector = Collector(spark, repository)
    collector.materialize("store_listing")
    read_many, answers = LocalStore.read_many, dict[str, bytes]()

    def shifted(store: LocalStore, keys: Iterable[str], **options: Any) -> Iterator[tuple[str, bytes]]:
        read = dict(read_many(store, keys, **options))
        contents = list(read.values())
        answers.update(zip(read, [*contents[-1:], *contents[:-1]], strict=True))
        return iter([(key, answers[key]) for key in read])

    monkeypatch.setattr(LocalStore, "read_many", shifted)
    with pytest.raises(CorruptFileError, match=r"bytes, but|it was read twice, with different content"):
        collector.materialize("uncommitted")
    open_read = LocalStore.open_read

    def open_shifted(store: LocalStore, key: str) -> AbstractContextManager[BinaryIO]:
        return nullcontext(BytesIO(answers[key])) if key in answers else open_read(store, key)

    monkeypatch.setattr(LocalStore, "open_read", open_shifted)
    with pytest.raises(CorruptFileError, match=r"the store lists it with [\d,]+ bytes, but [\d,]+ were read"):
        collector.materialize("uncommitted")


def test_the_rows_of_the_list_are_unknown_if_a_page_was_written_twice(
    spark: SparkSession, repository: LakeRepository, lake: Lake
) -> None:
    collector = Collector(spark, repository)
    collector.materialize("store_listing", "uncommitted")
    assert collector.manifest("uncommitted").facts["listed"] == PAGES

    def repeat(asked: Asked, answer: Answered) -> None:
        run = collector.begin()
        folder = run.key_of(answer.json["gc_uncommitted_location"]).rstrip("/")
        [file, *_] = keys_below(repository.store, f"{folder}/")
        repository.store.put(f"{file}.again", repository.store.read(file))

    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        proxy.instead(PREPARE, repeat)
        collector = Collector(spark, repository, server=server_at(lake, proxy.url))
        collector.materialize("store_listing", "uncommitted")
    assert collector.manifest("uncommitted").facts["listed"] is None


def test_the_rows_of_the_list_are_unknown_if_a_request_got_no_answer(
    spark: SparkSession, repository: LakeRepository, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page is written twice, and an old list of the folder lacks another one: their number is right."""
    files = uncommitted._files

    def lose(asked: Asked, answer: Answered) -> Answered:
        return refusal(503) if asked.number == 2 else answer  # the first one begins another list if it is repeated

    def old(*arguments: Any) -> list[tuple[str, int]]:
        found = files(*arguments)
        assert len(found) == PAGES + 1
        return found[1:]

    monkeypatch.setattr(uncommitted, "_files", old)
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        proxy.instead(PREPARE, lose)
        collector = Collector(spark, repository, server=server_at(lake, proxy.url))
        collector.materialize("store_listing", "uncommitted")
    facts = collector.manifest("uncommitted").facts
    assert (facts["files"], facts["listed"]) == (PAGES, None)


@pytest.mark.parametrize("answer", [refusal(410, "gone"), Answered(410, b"410 Gone", {"Content-Type": "text/plain"})])
def test_a_staged_object_that_a_proxy_calls_gone_is_live(
    spark: SparkSession,
    lake: Lake,
    repository: LakeRepository,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answered,
) -> None:
    """The server's list omits the objects, as for objects that a local store's server linked by its folder."""
    monkeypatch.setattr(uncommitted, "_files", lambda *_: [])
    staged = {str(stats.physical_address) for b in ("main", "dev") for stats in staged_objects(repository, b)}
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        proxy.fail("/objects/stat", *[answer] * 100)
        collector = Collector(spark, repository, server=server_at(lake, proxy.url))
        collector.materialize("store_listing", "uncommitted")
    assert collector.addresses("uncommitted") == {url.removeprefix(repository.namespace) for url in staged}
    assert len(staged) == PAGES
