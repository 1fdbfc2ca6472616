"""Pages of Google's listings: complete, in order, and in parallel key ranges."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from lakefs_gc.errors import StorageError, StoreUnavailableError
from lakefs_gc.storage.gcs.client import Answer
from lakefs_gc.storage.gcs.errors import IncompleteAnswerError
from lakefs_gc.storage.gcs.listing import Parts, parse_page, read_carefully, read_quickly
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc.storage.listing.key_ranges import KeyRange
from lakefs_gc.storage.listing.range_listing import ListingLimits, RangeLister
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.fuzz.mutation import mutant
from lakefs_gc_tests.support.gcs_stand_in import GCSStandIn, Reply


def item(name: str, **facts: object) -> dict[str, Any]:
    return {"name": name, "size": "7", "updated": "2026-11-24T17:18:56.123Z", **facts}


def page(*items: dict[str, Any], **more: object) -> Answer:
    return Answer(200, {}, json.dumps({"kind": "storage#objects", "items": items, **more}).encode())


def test_a_page() -> None:
    names = ("ns/a", "ns/folder/", "ns/é\x01%", "ns/😀")
    read = parse_page(page(*map(item, names), prefixes=["ns/d/"], nextPageToken="more"), "ns/", "ns/Z")
    assert read.objects["address"].to_pylist() == ["a", "é\x01%", "😀"]
    assert read.objects["size"].to_pylist() == [7, 7, 7]
    assert read.objects["last_modified"][0].as_py() == datetime(2026, 11, 24, 17, 18, 56, 123000, UTC)
    assert (read.sub_prefixes, read.next_token, read.last_name) == (["d/"], "more", "ns/😀")


def test_both_readers_read_a_page_alike() -> None:
    names = ["ns/", 'ns/"\\/\b', "ns/a", "ns/é\x00", "ns/\uffff", "ns/😀", "ns/😀/"]
    many = page(*(item(f"ns/{number:06}") for number in range(1000)), nextPageToken="more")
    pages = [page(*map(item, names), prefixes=["ns/é/"]), page(), page(prefixes=["ns/a/"], nextPageToken="more"), many]
    pages += [Answer(200, {}, json.dumps(json.loads(answer.body), indent=2).encode()) for answer in pages]
    for answer in pages:
        quick = read_quickly(answer.body)
        assert quick is not None
        assert texts(quick) == texts(read_carefully(answer))


def texts(parts: Parts) -> list[Any]:
    return [*(array.to_pylist() for array in (parts.names, parts.sizes, parts.times)), list(parts.levels), parts.token]


def test_a_damaged_page_that_is_read_quickly_is_one_that_is_read_carefully() -> None:
    seeds = [
        page(item("ns/a"), item('ns/"\\é😀'), prefixes=["ns/d/"], nextPageToken="more").body,
        page(item("ns/b"), nextPageToken="more").body,
        page(item("ns/c")).body,
    ]
    rng, accepted = random.Random(26), 0
    for _ in range(2000):
        body = mutant(rng.choice(seeds), rng.choice(seeds), rng)
        if (quick := read_quickly(body)) is not None:
            accepted += 1
            assert texts(quick) == texts(read_carefully(Answer(200, {}, body))), body
    assert accepted > 50


@pytest.mark.parametrize(
    "body",
    [
        page(item("ns/a", id="field")).body,
        page(item("ns/null")).body,
    ],
)
def test_a_page_in_another_form_is_read_carefully(body: bytes) -> None:
    assert read_quickly(body) is None
    assert parse_page(Answer(200, {}, body), "ns/", "").objects["size"].to_pylist() == [7]


def test_times_of_each_precision() -> None:
    times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-01T01:00:00.123456+01:00"]
    items = [item(f"ns/{number}", updated=time) for number, time in enumerate(times)]
    read = parse_page(page(*items), "ns/", "")
    assert [time.microsecond for time in read.objects["last_modified"].to_pylist()] == [0, 500_000, 123_456]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, {}, page(item("ns/a")).body[:-5]),
        Answer(200, {}, b""),
        Answer(200, {}, b"{}"),
        Answer(200, {}, b'{"kind": "storage#object"}'),
        page(item("ns/a"), other="field"),
        page(error={"code": 503}),
        page(Items=[]),
        page(item("ns/a", size="-5")),
        page(item("ns/a", size="0x10")),
        Answer(200, {}, page(item("ns/a")).body.replace(b'"size"', b'"name": "ns/b", "size"')),
        Answer(200, {}, page(item("ns/a")).body.replace(b'"items"', b'"items": [], "items"')),
        Answer(200, {}, page(nextPageToken="more").body.replace(b'"next', b'"nextPageToken": "", "next')),
        Answer(200, {}, page().body[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        page(item("elsewhere/a")),
        page(item("ns/a"), prefixes=["elsewhere/"]),
        page({"name": "ns/a", "size": "7"}),
        page(item("ns/a", size="x")),
        page(item("ns/a", updated="yesterday")),
        page(item("ns/\ud800")),
        page(item("ns/a"), nextPageToken=5),
        page(item("ns/a"), nextPageToken=None),
        page(item("ns/a"), prefixes=None),
        page(item("ns/a"), prefixes=[None]),
        page(item("ns/a"), prefixes="ns/d/"),
        page(item("ns/a"), items=None),
        page(item("ns/a"), items={}),
        page({**item("ns/a"), "name": None}),
        page(item("ns/a", size=None)),
        page(item("ns/a", updated=7)),
        Answer(200, {}, page(item("ns/a")).body + page(item("ns/b")).body),
        Answer(200, {}, page(item("ns/a")).body + b"\n" + page(item("ns/b")).body),
        Answer(200, {}, page(item("ns/a")).body.replace(b"ns/a", b"ns/\xff")),
    ],
)
def test_a_page_that_is_not_complete(answer: Answer) -> None:
    with pytest.raises(IncompleteAnswerError):
        parse_page(answer, "ns/", "")


@pytest.mark.parametrize(
    ("names", "after"), [(["ns/b", "ns/a"], ""), (["ns/a", "ns/a"], ""), (["ns/b"], "ns/b"), (["ns/b"], "ns/c")]
)
def test_names_that_do_not_ascend(names: list[str], after: str) -> None:
    with pytest.raises(StorageError, match="order of the names"):
        parse_page(page(*map(item, names)), "ns/", after)


@pytest.mark.parametrize("prefix", ["ns/b", "ns/a/"])
def test_a_page_of_another_prefix_is_refused(prefix: str) -> None:
    """It may be the answer to another request."""
    answers = page(item("ns/a")), page(prefixes=["ns/a/"])
    assert [len(parse_page(answer, "ns/", "", "ns/a").objects) for answer in answers] == [1, 0]
    with pytest.raises(IncompleteAnswerError, match=f"the store returned names outside '{prefix}'"):
        parse_page(answers[0], "ns/", "", prefix)
    with pytest.raises(IncompleteAnswerError, match="outside"):
        parse_page(answers[1], "ns/", "", "ns/b")


def test_pages_are_one_listing(gcs: GCSStandIn, store: GCSStore) -> None:
    def answer(number: int, path: str, _: bytes) -> Reply:
        token = parse_qs(urlsplit(path).query).get("pageToken", [""])[0]
        assert token == ("" if number == 1 else f"t{number - 1}")
        more = {"nextPageToken": f"t{number}"} if number < 4 else {}
        # A page may be empty although another one follows.
        items = [] if number == 2 else [item(f"ns/{number}")]
        return Reply(200, page(*items, **more).body)

    gcs.replies["list"] = answer
    assert [key for batch in store.list() for key in batch["address"].to_pylist()] == ["1", "3", "4"]


def test_a_page_before_the_previous_one_is_refused(gcs: GCSStandIn, store: GCSStore) -> None:
    def answer(number: int, *_: object) -> Reply:
        return Reply(200, page(item(f"ns/{9 - number}"), nextPageToken=str(number) if number < 3 else "").body)

    gcs.replies["list"] = answer
    with pytest.raises(StorageError, match="order of the names"):
        list(store.list())


def test_a_token_that_repeats_is_refused(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["list"] = lambda number, *_: Reply(200, page(item(f"ns/{number}"), nextPageToken="t").body)
    with pytest.raises(StorageError, match="never ends"):
        list(store.list())


def test_a_cut_page_is_requested_again_and_never_taken_for_the_end(gcs: GCSStandIn, store: GCSStore) -> None:
    whole = page(item("ns/a"), item("ns/b")).body
    gcs.replies["list"] = lambda number, *_: (
        Reply(200, whole[:40], announced=len(whole)) if number < 3 else Reply(200, whole)
    )
    assert [key for batch in store.list() for key in batch["address"].to_pylist()] == ["a", "b"]
    gcs.replies["list"] = lambda *_: Reply(200, whole[:40], announced=len(whole))
    with pytest.raises(StoreUnavailableError):
        list(store.list())


def test_key_ranges_in_parallel(gcs_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    store = GCSStore(gcs_namespace)
    store.lists_by_page = True  # this level has no folders, so the emulator's pages are in order
    keys = [f"data/s/{number:04d}" for number in range(300)]
    for key in keys:
        store.put(key, b"1")
    pages_of = GCSStore._pages

    def short(self: GCSStore, prefix: str, **options: Any) -> Any:
        return pages_of(self, prefix, **{"max_results": 7, **options})

    monkeypatch.setattr(GCSStore, "_pages", short)
    cuts = ["", "data/s/0099", "data/s/0150", "data/s/0299"]
    ranges = [KeyRange("data/s/", cut, until, one_level=True) for cut, until in zip(cuts, [*cuts[1:], ""], strict=True)]
    lister = RangeLister(store, ranges, ListingLimits(8, cut_after_pages=2))
    listed = [key for batch in lister.batches() for key in batch["address"].to_pylist()]
    assert sorted(listed) == keys, "each key once"
    assert store.first_name_after("data/s/", "data/s/0123") == "data/s/0124"
    assert store.first_name_after("data/", "data/") == "data/s"
    assert store.first_name_after("data/s/", "data/s/0299") is None


def test_a_range_ends_in_the_store_with_its_last_key(gcs_namespace: StoreLocation) -> None:
    store = GCSStore(gcs_namespace)
    for key in ("a", "b", "b!", "b/in a folder", "b0", "c"):
        store.put(f"data/{key}", b"1")
    pages = list(store.pages("data/", start_after="data/a", until="data/b", one_level=True))
    assert [page.objects["address"].to_pylist() for page in pages] == [["data/b"]]
    assert [page.sub_prefixes for page in pages] == [[]], "the folder is after the end"
    pages = list(store.pages("data/", start_after="data/b", one_level=True))
    assert [page.objects["address"].to_pylist() for page in pages] == [["data/b!", "data/b0", "data/c"]]
    assert [page.sub_prefixes for page in pages] == [["data/b/"]]


def test_bounds_of_a_range(gcs: GCSStandIn, store: GCSStore) -> None:
    gcs.replies["list"] = lambda *_: Reply(200, page(item("ns/data/b"), item("ns/data/z")).body)
    ranges = [KeyRange("data/", "data/a", "data/b", one_level=True)]
    listed = RangeLister(store, ranges, ListingLimits(1)).batches()
    assert [key for batch in listed for key in batch["address"].to_pylist()] == ["data/b"], "a store may ignore the end"
    query = parse_qs(urlsplit(gcs.requests[0][1]).query)
    assert (query["startOffset"], query["endOffset"]) == (["ns/data/a"], ["ns/data/b!"])
