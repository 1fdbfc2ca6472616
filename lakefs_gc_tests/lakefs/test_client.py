"""The client of lakeFS against the sandbox, through a proxy that spoils answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import lakefs_sdk
import pytest

from lakefs_gc.errors import (
    IncompleteAnswerError,
    ReadOnlyRepositoryError,
    RepositoryNotFoundError,
    ServerError,
    ServerUnavailableError,
)
from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc_tests.support.collector import Lake
from lakefs_gc_tests.support.lakefs_proxy import Answered, LakeFSProxy, refusal

ASYNC, STATUS, SYNC = "/gc/prepare_commits/async", "/gc/prepare_commits/status", "/gc/prepare_commits"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake", options=SandboxOptions(grace_period_seconds=7200)) as lake:
        yield lake


@pytest.fixture
def proxy(lake: Lake) -> Iterator[LakeFSProxy]:
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        yield proxy


class Waits(list[float]):
    """Seconds that a client wanted to wait; no time passes."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def server(lake: Lake, proxy: LakeFSProxy, waits: Waits) -> LakeFSClient:
    """A client behind the proxy."""
    return LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}), sleep=waits)


def test_facts_of_server_and_repository(lake: Lake, server: LakeFSClient) -> None:
    lake.repository("lake", "local://lake/")
    assert server.grace_period_seconds() == 7200
    assert server.version()
    found = server.repository("lake")
    assert (found.name, found.storage_namespace, found.default_branch, found.read_only) == (
        "lake",
        "local://lake/",
        "main",
        False,
    )


def test_all_pages_of_repositories_and_branches(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    repository = lake.repository("repo-0")
    for number in range(1, 5):
        lake.repository(f"repo-{number}")
        repository.branch(f"branch-{number}")
    hidden = lakefs_sdk.BranchCreation(name="secret", source="main", hidden=True)
    lake.client.branches_api.create_branch("repo-0", hidden)

    proxy.spoil.append(lambda asked, real: real(asked.path.replace("amount=1000", "amount=2")))
    assert [found.name for found in server.repositories()] == [f"repo-{number}" for number in range(5)]
    heads = dict(server.branch_heads("repo-0"))
    assert set(heads) == {"main", "secret", *(f"branch-{number}" for number in range(1, 5))}
    assert len(proxy.asked) == 6


@pytest.mark.parametrize("offset", ["", "repo-0"])
def test_a_list_that_stands_still_is_refused(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy, offset: str) -> None:
    lake.repository("repo-0")
    more = {"has_more": True, "next_offset": offset, "results": 1, "max_per_page": 1000}
    proxy.instead("/repositories", lambda asked, answer: answer.with_json(pagination=more))
    proxy.instead("/branches", lambda asked, answer: answer.with_json(pagination=more | {"next_offset": ""}))
    with pytest.raises(IncompleteAnswerError, match="there is more, and starts again") as caught:
        list(server.repositories())
    assert caught.value.remedy
    with pytest.raises(IncompleteAnswerError, match="list of branches of repo-0"):
        list(server.branch_heads("repo-0"))


TROUBLES = [refusal(503), refusal(429), refusal(500), Answered(200, b'{"id": "la', cut_at=3)]


def test_what_may_pass_is_tried_again(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy, waits: Waits) -> None:
    lake.repository("lake")
    proxy.fail("/repositories/lake", *TROUBLES)
    assert server.repository("lake").name == "lake"
    assert proxy.count("/repositories/lake") == 5
    assert waits == [0.5, 1.0, 2.0, 4.0]


def test_what_does_not_pass_is_given_up(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    lake.repository("lake")
    proxy.fail("/repositories/lake", *[refusal(503, "busy")] * 5)
    with pytest.raises(ServerUnavailableError, match="lakeFS answered 503: busy") as caught:
        server.repository("lake")
    assert caught.value.facts["status"] == 503
    assert server.repository("lake")  # the sixth time


def test_a_server_that_is_not_there(lake: Lake, waits: Waits) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": url}), sleep=waits)
    with pytest.raises(ServerUnavailableError, match="cannot reach lakeFS at http://127"):
        server.version()
    assert len(waits) == 4


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (refusal(400, "bad"), ServerError, "lakeFS answered 400: bad"),
        (refusal(401, "who"), ServerError, "lakeFS answered 401: who"),
        (refusal(403, "may not"), ServerError, "lakeFS answered 403: may not"),
        (refusal(403, "read-only repository"), ReadOnlyRepositoryError, "read-only"),
        (refusal(404, "none"), RepositoryNotFoundError, "lakeFS answered 404: none"),
        (Answered(404, b"<html>no"), ServerUnavailableError, "404: Not Found, and the answer is not lakeFS's"),
        (Answered(200, b"<html>Sign in</html>", {"Content-Type": "text/html"}), IncompleteAnswerError, "not answer as"),
        (Answered(200, b"{}"), IncompleteAnswerError, "not answer as lakeFS does"),
    ],
)
def test_refusals_are_told_apart_and_not_tried_again(
    server: LakeFSClient, proxy: LakeFSProxy, answer: Answered, error: type[ServerError], message: str
) -> None:
    proxy.fail("/repositories/lake", *[answer] * 2)
    with pytest.raises(error, match=message) as caught:
        server.repository("lake")
    assert type(caught.value) is error
    assert caught.value.remedy
    assert proxy.count("/repositories/lake") == 1


def test_wrong_credentials_and_no_secret_in_the_error(lake: Lake) -> None:
    wrong = lake.credentials.model_copy(update={"secret_access_key": "wr0ng"})
    with pytest.raises(ServerError, match="answered 401") as caught:
        LakeFSClient(wrong).repository("lake")
    assert "wr0ng" not in str(caught.value)
    assert "check the access key" in caught.value.remedy


def test_rules_unset_and_an_unknown_repository_are_two_things(lake: Lake, server: LakeFSClient) -> None:
    repository = lake.repository()
    assert server.retention_rules("lake") is None
    repository.keep_days(7, main=21)
    rules = server.retention_rules("lake")
    assert rules is not None
    assert (rules.default_retention_days, rules.branches) == (7, {"main": 21})
    with pytest.raises(RepositoryNotFoundError):
        server.retention_rules("nowhere")


def test_rules_without_branches(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    lake.repository().keep_days(7)
    proxy.instead("/settings/gc_rules", lambda asked, answer: answer.with_json(branches=None))
    rules = server.retention_rules("lake")
    assert rules is not None
    assert (rules.default_retention_days, rules.branches) == (7, {})


def test_a_trouble_with_the_rules_is_not_their_absence(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
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
    with pytest.raises(IncompleteAnswerError, match="the rules of lake are not what lakeFS answers"):
        server.retention_rules("lake")


def commits_listed(lake: Lake, location: str) -> int:
    file = Path(lake.location.url.removeprefix("file://")) / location.removeprefix("local://")
    return len(read_active_commits(file.read_bytes(), str(file)))


def test_commits_are_prepared_in_the_background(
    lake: Lake, server: LakeFSClient, proxy: LakeFSProxy, waits: Waits
) -> None:
    lake.repository().keep_days(7)
    unfinished = Answered(200, b'{"task_id": "GCPC1", "completed": false, "update_time": "2026-07-01T00:00:00Z"}')
    proxy.fail(STATUS, unfinished, unfinished, unfinished)
    prepared = server.prepare_commits("lake", timeout_seconds=60)
    assert prepared.location == f"local://lake/_lakefs/retention/gc/commits/run_id={prepared.run_id}/commits.csv"
    assert commits_listed(lake, prepared.location) == 1
    assert waits[:3] == [0.05, 0.1, 0.2]


def test_an_older_server_prepares_them_at_once(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    repository = lake.repository()
    repository.keep_days(7)
    proxy.fail(ASYNC, refusal(404, "invalid API endpoint"))
    prepared = server.prepare_commits("lake", timeout_seconds=60)
    assert commits_listed(lake, prepared.location) == 1
    assert proxy.count(SYNC) == 1
    with pytest.raises(RepositoryNotFoundError):  # the same 404, but it is the repository that is not there
        server.prepare_commits("nowhere", timeout_seconds=60)
    assert proxy.count(SYNC) == 1


def test_a_success_of_another_kind_is_no_answer(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    """Of a 200 in place of 201 or 202 the SDK makes None."""
    lake.repository().keep_days(7)
    proxy.fail(ASYNC, Answered(200, b"{}"))
    with pytest.raises(IncompleteAnswerError, match=r"prepare commits of lake: .* not answer as lakeFS does"):
        server.prepare_commits("lake", timeout_seconds=60)
    proxy.fail("/gc/prepare_uncommited", Answered(200, b"{}"))
    with pytest.raises(IncompleteAnswerError, match=r"prepare uncommitted data of lake: .* not answer as lakeFS does"):
        server.prepare_uncommitted("lake")


def test_a_500_and_then_a_404_are_no_empty_answer(lake: Lake, server: LakeFSClient, proxy: LakeFSProxy) -> None:
    """lakeFS's own client takes this for "no commit is active"."""
    lake.repository().keep_days(7)
    proxy.fail(ASYNC, refusal(500), refusal(404))
    proxy.fail(SYNC, refusal(500), refusal(404))
    with pytest.raises(RepositoryNotFoundError):
        server.prepare_commits("lake", timeout_seconds=60)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"completed": True, "error": {"message": "disk full"}}, ServerError, "the server's task failed: disk full"),
        ({"completed": True, "result": None}, IncompleteAnswerError, "ended without a result"),
        (
            {"completed": True, "result": {"run_id": "r", "gc_commits_location": "", "gc_addresses_location": ""}},
            IncompleteAnswerError,
            "does not say where",
        ),
        ({"completed": False, "result": None}, ServerUnavailableError, "not finished after"),
    ],
)
def test_a_task_that_does_not_end_well(
    lake: Lake,
    server: LakeFSClient,
    proxy: LakeFSProxy,
    change: dict[str, object],
    error: type[ServerError],
    message: str,
) -> None:
    lake.repository().keep_days(7)
    proxy.instead(STATUS, lambda asked, answer: answer.with_json(**change))
    with pytest.raises(error, match=message) as caught:
        server.prepare_commits("lake", timeout_seconds=20)
    assert caught.value.remedy


def test_without_rules_there_are_no_commits_to_prepare(lake: Lake, server: LakeFSClient) -> None:
    lake.repository()
    with pytest.raises(ServerError, match="get gc rules: not found"):
        server.prepare_commits("lake", timeout_seconds=60)


def test_uncommitted_pages(lake: Lake, server: LakeFSClient) -> None:
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


def test_the_metarange_of_a_commit(lake: Lake, server: LakeFSClient) -> None:
    repository = lake.repository()
    [(_, first)] = server.branch_heads("lake")
    assert server.metarange_of("lake", first) == ""
    repository.put("x")
    assert len(server.metarange_of("lake", repository.commit())) == 64


def test_a_server_without_a_grace_period(server: LakeFSClient, proxy: LakeFSProxy) -> None:
    proxy.fail("/config/garbage-collection", Answered(200, b"{}"))
    with pytest.raises(IncompleteAnswerError, match="does not say its grace period"):
        server.grace_period_seconds()
