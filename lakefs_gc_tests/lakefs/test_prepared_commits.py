"""The active commits that the server lists, asynchronously or synchronously."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.errors import IncompleteAnswerError, RepositoryNotFoundError, ServerError, ServerUnavailableError
from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy, refusal

ASYNC, STATUS, SYNC = "/gc/prepare_commits/async", "/gc/prepare_commits/status", "/gc/prepare_commits"


def commits_listed(lake: Lake, location: str) -> int:
    file = Path(lake.location.url.removeprefix("file://")) / location.removeprefix("local://")
    return len(read_active_commits(file.read_bytes(), str(file)))


def test_commits_are_prepared_asynchronously(
    lake: Lake, server: LakeFSClient, proxy: LakeFSProxy, waits: list[float]
) -> None:
    lake.repository().keep_days(7)
    states = iter([{"completed": False, "result": None}] * 3)
    proxy.instead(STATUS, lambda asked, answer: answer.with_json(**next(states, {})))
    prepared = server.prepare_commits("lake", timeout_seconds=60)
    assert prepared.location == f"local://lake/_lakefs/retention/gc/commits/run_id={prepared.run_id}/commits.csv"
    assert commits_listed(lake, prepared.location) == 1
    assert waits[:3] == [0.05, 0.1, 0.2]


@pytest.mark.parametrize("status", [404, 500], ids=["sandbox", "lakeFS before 1.72"])
def test_commits_are_prepared_synchronously_by_an_older_server(
    lake: Lake, server: LakeFSClient, proxy: LakeFSProxy, status: int
) -> None:
    """The answers of lakeFS 1.0.0 and 0.111.0 were observed: they are a 500, as of a failure of the server."""
    repository = lake.repository()
    repository.keep_days(7)
    proxy.fail(ASYNC, refusal(status, "invalid API endpoint"))
    prepared = server.prepare_commits("lake", timeout_seconds=60)
    assert commits_listed(lake, prepared.location) == 1
    assert (proxy.count(ASYNC), proxy.count(SYNC)) == (1, 1), "the answer is final: nothing is retried"
    with pytest.raises(RepositoryNotFoundError):  # the same 404, but here the repository does not exist
        server.prepare_commits("nowhere", timeout_seconds=60)
    assert proxy.count(SYNC) == 1


def test_a_500_and_then_a_404_do_not_mean_no_active_commits(
    lake: Lake, server: LakeFSClient, proxy: LakeFSProxy
) -> None:
    """lakeFS's own client reads this as "no commit is active"."""
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
            "does not name the file",
        ),
        ({"completed": False, "result": None}, ServerUnavailableError, "not finished after"),
    ],
)
def test_a_task_that_fails_or_never_ends_is_an_error(
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


def test_preparing_commits_without_rules_is_refused(lake: Lake, server: LakeFSClient) -> None:
    lake.repository()
    with pytest.raises(ServerError, match="get gc rules: not found"):
        server.prepare_commits("lake", timeout_seconds=60)
