"""The lakeFS client against the sandbox, through a proxy that replaces answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable

import lakefs_sdk
import pytest

from lakefs_gc.config import LakeFSSettings
from lakefs_gc.errors import (
    IncompleteAnswerError,
    ReadOnlyRepositoryError,
    RepositoryNotFoundError,
    ServerError,
    ServerUnavailableError,
)
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy, refusal


def test_the_client_reads_facts_of_server_and_repository(lake: Lake, server: LakeFSClient) -> None:
    lake.repository("lake", "local://lake/")
    assert server.grace_period_seconds() == 7200
    assert server.version()
    repository = server.repository("lake")
    assert (repository.name, repository.storage_namespace, repository.default_branch, repository.read_only) == (
        "lake",
        "local://lake/",
        "main",
        False,
    )


def test_lists_are_read_to_the_last_page(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    """Each list is read with one request for each page, and no more."""
    repository = lake.repository("repo-0")
    for number in range(1, 5):
        lake.repository(f"repo-{number}")
        repository.branch(f"branch-{number}")
        repository.put(f"staged-{number}")
        tag = lakefs_sdk.TagCreation(id=f"tag-{number}", ref="main")
        lake.client.tags_api.create_tag("repo-0", tag)
    hidden = lakefs_sdk.BranchCreation(name="secret", source="main", hidden=True)
    lake.client.branches_api.create_branch("repo-0", hidden)

    proxy.spoil.append(lambda asked, real: real(asked.path.replace("amount=1000", "amount=2")))
    assert [listed.name for listed in server.repositories()] == [f"repo-{number}" for number in range(5)]
    heads = dict(server.branch_heads("repo-0"))
    assert set(heads) == {"main", "secret", *(f"branch-{number}" for number in range(1, 5))}
    assert len(proxy.asked) == 6
    assert [change.path for change in server.changes("repo-0", "main")] == [f"staged-{n}" for n in range(1, 5)]
    assert [name for name, _ in server.tags("repo-0")] == [f"tag-{number}" for number in range(1, 5)]
    assert len(proxy.asked) == 10


LISTS: dict[str, Callable[[LakeFSClient], Iterable[object]]] = {
    "/repositories": lambda server: server.repositories(),
    "/branches": lambda server: server.branch_heads("repo-0"),
    "/branches/main/diff": lambda server: server.changes("repo-0", "main"),
    "/tags": lambda server: server.tags("repo-0"),
}
"""Each call that lists page by page, by the end of its path."""


@pytest.mark.parametrize("offsets", [[""], ["name", "name"], ["name", "before"]])
@pytest.mark.parametrize("path", LISTS)
def test_a_list_that_does_not_advance_is_refused(
    lake: Lake, server: LakeFSClient, proxy: LakeFSProxy, path: str, offsets: list[str]
) -> None:
    """The server reports another page without an offset, with the same offset again, or with an earlier one."""
    lake.repository("repo-0")
    left = list(offsets)

    def another_page(asked: Asked, answer: Answered) -> Answered:
        more = {"has_more": True, "next_offset": left.pop(0), "results": 1, "max_per_page": 1000}
        return answer.with_json(pagination=more)

    proxy.instead(path, another_page)
    with pytest.raises(IncompleteAnswerError, match=f"next_offset '{offsets[-1]}' does not advance past") as caught:
        list(LISTS[path](server))
    assert caught.value.remedy
    assert not left


def test_a_page_that_ends_at_a_name_that_is_not_utf_8_is_refused(
    lake: Lake, server: LakeFSClient, proxy: LakeFSProxy
) -> None:
    """The character that JSON has for such a byte sorts after most names, which the next page would omit."""
    lake.repository("repo-0")

    def another_page(asked: Asked, answer: Answered) -> Answered:
        more = {"has_more": True, "next_offset": "a\N{REPLACEMENT CHARACTER}", "results": 1, "max_per_page": 1000}
        return answer.with_json(pagination=more) if asked.number == 1 else answer

    proxy.instead("/branches/main/diff", another_page)
    with pytest.raises(IncompleteAnswerError, match="a name that is not valid UTF-8"):
        list(server.changes("repo-0", "main"))


NO_PAGES = {
    "no JSON": b"<html>",
    "no object": b"[]",
    "no results": b'{"pagination": {"has_more": false, "next_offset": ""}}',
    "results that are null": b'{"pagination": {"has_more": false, "next_offset": ""}, "results": null}',
    "a result that is no object": b'{"pagination": {"has_more": false, "next_offset": ""}, "results": ["a"]}',
    "no pagination": b'{"results": []}',
    "pagination that is null": b'{"pagination": null, "results": []}',
    "has_more that is null": b'{"pagination": {"has_more": null, "next_offset": ""}, "results": []}',
    "no has_more": b'{"pagination": {"next_offset": ""}, "results": []}',
    "an offset that is a number": b'{"pagination": {"has_more": true, "next_offset": 7}, "results": []}',
}


@pytest.mark.parametrize("case", NO_PAGES)
def test_an_answer_that_is_no_page_is_no_empty_list(
    lake: Lake, server: LakeFSClient, proxy: LakeFSProxy, case: str
) -> None:
    lake.repository("repo-0")
    proxy.fail("/branches/main/diff", Answered(200, NO_PAGES[case]))
    with pytest.raises(IncompleteAnswerError, match="is not a page of a list of lakeFS"):
        list(server.changes("repo-0", "main"))


CHANGE = {"type": "added", "path": "a", "path_type": "object", "size_bytes": 7}


@pytest.mark.parametrize(
    "change",
    [
        {"type": "rewritten"},
        {"type": None},
        {"path": None},
        {"size_bytes": None},
        {"size_bytes": "7"},
        {"size_bytes": True},
    ],
)
def test_a_change_that_lakefs_does_not_report_is_refused(
    lake: Lake, server: LakeFSClient, proxy: LakeFSProxy, change: dict[str, object]
) -> None:
    lake.repository("repo-0")
    results = [CHANGE, {**CHANGE, **change}]
    proxy.instead("/branches/main/diff", lambda _, answer: answer.with_json(results=results))
    with pytest.raises(IncompleteAnswerError) as caught:
        list(server.changes("repo-0", "main"))
    assert caught.value.remedy


def test_each_change_but_a_delete_is_reported(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    lake.repository("repo-0")
    types = ("added", "removed", "changed", "conflict", "prefix_changed")
    results = [{**CHANGE, "type": name, "path": name} for name in types]
    proxy.instead("/branches/main/diff", lambda _, answer: answer.with_json(results=results))
    changes = list(server.changes("repo-0", "main"))
    assert [change.path for change in changes] == [name for name in types if name != "removed"]
    assert {change.size_bytes for change in changes} == {7}


TEMPORARY = [refusal(503), refusal(429), refusal(500), Answered(200, b'{"id": "la', cut_at=3)]


def test_temporary_failures_are_retried(
    lake: Lake, server: LakeFSClient, proxy: LakeFSProxy, waits: list[float]
) -> None:
    lake.repository("lake")
    proxy.fail("/repositories/lake", *TEMPORARY)
    assert server.repository("lake").name == "lake"
    assert proxy.count("/repositories/lake") == 5
    assert waits == [0.5, 1.0, 2.0, 4.0]


def test_the_fifth_failure_is_final(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    lake.repository("lake")
    proxy.fail("/repositories/lake", *[refusal(503, "busy")] * 5)
    with pytest.raises(ServerUnavailableError, match="lakeFS answered 503: busy") as caught:
        server.repository("lake")
    assert caught.value.facts["status"] == 503
    assert server.repository("lake")  # the sixth time


def test_an_unreachable_server_is_unavailable(lake: Lake, waits: list[float]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": url}), sleep=waits.append)
    with pytest.raises(ServerUnavailableError, match="cannot reach lakeFS at http://127"):
        server.version()
    assert len(waits) == 4


def test_a_server_that_does_not_answer_in_time_is_unavailable(
    lake: Lake, proxy: LakeFSProxy, waits: list[float]
) -> None:
    def answer_late(asked: Asked, answer: Answered) -> Answered:
        time.sleep(0.5)
        return answer

    proxy.instead("/repositories/lake", answer_late)
    lake.repository("lake", "local://lake/")
    credentials = lake.credentials.model_copy(update={"endpoint_url": proxy.url})
    server = LakeFSClient(credentials, LakeFSSettings(read_timeout_seconds=0.1), sleep=waits.append)
    with pytest.raises(ServerUnavailableError, match="ReadTimeoutError") as caught:
        server.repository("lake")
    assert "raise lakefs.read_timeout_seconds" in str(caught.value.remedy)
    assert len(waits) == 4
    assert LakeFSClient(credentials).repository("lake")


def test_a_server_that_accepts_no_connection_in_time_is_unavailable(lake: Lake, waits: list[float]) -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        settings = LakeFSSettings(connect_timeout_seconds=0.1)
        server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": url}), settings, sleep=waits.append)
        with pytest.raises(ServerUnavailableError, match="ConnectTimeoutError") as caught:
            server.version()
    assert "raise lakefs.connect_timeout_seconds" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (refusal(400, "bad"), ServerError, "lakeFS answered 400: bad"),
        (refusal(401, "who"), ServerError, "lakeFS answered 401: who"),
        (refusal(403, "may not"), ServerError, "lakeFS answered 403: may not"),
        (refusal(403, "read-only repository"), ReadOnlyRepositoryError, "read-only"),
        (refusal(404, "none"), RepositoryNotFoundError, "lakeFS answered 404: none"),
        (Answered(404, b"<html>no"), ServerUnavailableError, "404: Not Found. The answer is not from lakeFS"),
        (Answered(200, b"<html>Sign in</html>", {"Content-Type": "text/html"}), IncompleteAnswerError, "not an answer"),
        (Answered(200, b"{}"), IncompleteAnswerError, "is not an answer of lakeFS"),
    ],
)
def test_each_refusal_has_its_error_and_is_not_retried(
    server: LakeFSClient, proxy: LakeFSProxy, answer: Answered, error: type[ServerError], message: str
) -> None:
    proxy.fail("/repositories/lake", *[answer] * 2)
    with pytest.raises(error, match=message) as caught:
        server.repository("lake")
    assert type(caught.value) is error
    assert caught.value.remedy
    assert proxy.count("/repositories/lake") == 1


def test_the_error_for_wrong_credentials_contains_no_secret(lake: Lake) -> None:
    wrong = lake.credentials.model_copy(update={"secret_access_key": "wr0ng"})
    with pytest.raises(ServerError, match="answered 401") as caught:
        LakeFSClient(wrong).repository("lake")
    assert "wr0ng" not in str(caught.value)
    assert "Check the access key" in caught.value.remedy


def test_unset_rules_differ_from_an_unknown_repository(lake: Lake, server: LakeFSClient) -> None:
    repository = lake.repository()
    assert server.retention_rules("lake") is None
    repository.keep_days(7, main=21)
    rules = server.retention_rules("lake")
    assert rules is not None
    assert (rules.default_retention_days, rules.branches) == (7, {"main": 21})
    with pytest.raises(RepositoryNotFoundError):
        server.retention_rules("nowhere")


def test_rules_without_branches_are_read(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    lake.repository().keep_days(7)
    proxy.instead("/settings/gc_rules", lambda asked, answer: answer.with_json(branches=None))
    rules = server.retention_rules("lake")
    assert rules is not None
    assert (rules.default_retention_days, rules.branches) == (7, {})


def test_a_failure_to_read_the_rules_does_not_mean_that_none_are_set(
    lake: Lake, server: LakeFSClient, proxy: LakeFSProxy
) -> None:
    lake.repository().keep_days(7)
    proxy.fail("/settings/gc_rules", *[refusal(500)] * 5)
    with pytest.raises(ServerUnavailableError):
        server.retention_rules("lake")
    proxy.fail("/settings/gc_rules", refusal(403))
    with pytest.raises(ServerError, match="403"):
        server.retention_rules("lake")


@pytest.mark.parametrize("body", [b"[]", b"{}", b"<html>", b"7"])
def test_rules_of_another_shape_are_refused(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy, body: bytes) -> None:
    lake.repository().keep_days(7)
    proxy.fail("/settings/gc_rules", Answered(200, body))
    with pytest.raises(IncompleteAnswerError, match="The rules of lake are not an answer of lakeFS"):
        server.retention_rules("lake")


def test_a_success_with_an_undefined_status_is_refused(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    """The SDK returns None for a 200 in place of a 201 or 202."""
    lake.repository().keep_days(7)
    proxy.fail("/gc/prepare_commits/async", Answered(200, b"{}"))
    with pytest.raises(IncompleteAnswerError, match=r"prepare commits of lake: .* is not an answer of lakeFS"):
        server.prepare_commits("lake", timeout_seconds=60)
    proxy.fail("/gc/prepare_uncommited", Answered(200, b"{}"))
    with pytest.raises(IncompleteAnswerError, match=r"prepare uncommitted data of lake: .* is not an answer of lakeFS"):
        server.prepare_uncommitted("lake")


def test_uncommitted_data_is_prepared_page_by_page(lake: Lake, server: LakeFSClient) -> None:
    repository = lake.repository()
    empty = server.prepare_uncommitted("lake")
    assert (bool(empty.run_id), empty.location, empty.continuation_token) == (True, "", "")
    repository.put("x")
    page = server.prepare_uncommitted("lake")
    assert page.location == f"local://lake/_lakefs/retention/gc/uncommitted/{page.run_id}/uncommitted/"
    assert page.continuation_token == ""
    frozen = lakefs_sdk.RepositoryCreation(name="frozen", storage_namespace="local://frozen", read_only=True)
    lake.client.repositories_api.create_repository(frozen)
    with pytest.raises(ReadOnlyRepositoryError):
        server.prepare_uncommitted("frozen")


def test_the_client_reads_the_metarange_of_a_commit(lake: Lake, server: LakeFSClient) -> None:
    repository = lake.repository()
    [(_, first)] = server.branch_heads("lake")
    assert server.metarange_of("lake", first) == ""
    repository.put("x")
    assert len(server.metarange_of("lake", repository.commit())) == 64


def test_a_server_that_reports_no_grace_period_is_refused(server: LakeFSClient, proxy: LakeFSProxy) -> None:
    proxy.fail("/config/garbage-collection", Answered(200, b"{}"))
    with pytest.raises(IncompleteAnswerError, match="does not report its grace period"):
        server.grace_period_seconds()


def test_a_commit_without_a_metarange_is_no_answer(lake: Lake, proxy: LakeFSProxy, server: LakeFSClient) -> None:
    """An empty name means that the commit has no content; no name at all means nothing."""
    repository = lake.repository()
    repository.put("x")
    head = repository.commit()

    def without(asked: Asked, answer: Answered) -> Answered:
        return answer.with_json(results=[commit | {"meta_range_id": None} for commit in answer.json["results"]])

    proxy.instead("/commits", without)
    with pytest.raises(IncompleteAnswerError):
        server.log_page("lake", head, after="", amount=10)


def test_an_object_without_an_address_is_no_answer(lake: Lake, proxy: LakeFSProxy, server: LakeFSClient) -> None:
    lake.repository().put("a")
    proxy.instead("/objects/stat", lambda asked, answer: answer.with_json(physical_address=""))
    with pytest.raises(IncompleteAnswerError, match="a has no physical address"):
        server.shown_address("lake", "main", "a")
    proxy.instead(
        "/objects/ls",
        lambda asked, answer: answer.with_json(
            results=[entry | {"physical_address": ""} for entry in answer.json["results"]]
        ),
    )
    with pytest.raises(IncompleteAnswerError, match="a has no physical address"):
        server.shown_objects("lake", "main", 10)
