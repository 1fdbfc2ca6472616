"""An answer of lakeFS about another one is not taken for one about what was asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakefs_gc.errors import IncompleteAnswerError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy


def test_an_answer_about_another_path_is_no_answer(lake: Lake, proxy: LakeFSProxy, server: LakeFSClient) -> None:
    """A cache that ignores the query answers with what it has for another path."""
    lake.repository().put("a")
    proxy.instead("/objects/stat", lambda asked, answer: answer.with_json(path="b"))
    with pytest.raises(IncompleteAnswerError, match="the answer is about b"):
        server.shown_address("lake", "main", "a")


def about(proxy: LakeFSProxy, ending: str, other: str) -> None:
    """Have requests for paths with this ending answered as those for another path."""

    def answer(asked: Asked, real: Callable[..., Answered]) -> Answered | None:
        return real(asked.path.replace(ending, other)) if asked.is_for(ending) else None

    proxy.spoil.append(answer)


def test_an_answer_about_another_one_is_no_answer(lake: Lake, proxy: LakeFSProxy, server: LakeFSClient) -> None:
    """The head of a branch would be one that it does not have, and its objects garbage. A metarange is remembered."""
    repository, name = lake.repository(), "/repositories/lake"
    lake.repository("other")
    repository.put("a")
    head = repository.commit()
    first = lake.client.commits_api.get_commit("lake", head).parents[0]
    repository.branch("dev")
    about(proxy, f"{name}/commits/{head}", f"{name}/commits/{first}")
    with pytest.raises(IncompleteAnswerError, match=f"the answer is about {first}"):
        server.metarange_of("lake", head)
    about(proxy, name, "/repositories/other")
    with pytest.raises(IncompleteAnswerError, match="the answer is about other"):
        server.repository("lake")
    proxy.spoil.clear()
    assert server.metarange_of("lake", head) == repository.metarange_of(head) != ""

    def without_dev(asked: Asked, answer: Answered) -> Answered:
        return answer.with_json(results=[branch for branch in answer.json["results"] if branch["id"] != "dev"])

    proxy.instead(f"{name}/branches", without_dev)
    server.expect_branches("lake", ["dev"])
    with pytest.raises(IncompleteAnswerError, match="does not list them: dev"):
        server.heads_of("lake")
    about(proxy, f"{name}/branches/dev", f"{name}/branches/main")
    with pytest.raises(IncompleteAnswerError, match="the answer is about main"):
        server.heads_of("lake")


def test_the_state_of_another_task_is_no_answer(lake: Lake, proxy: LakeFSProxy, server: LakeFSClient) -> None:
    lake.repository()
    proxy.instead("/gc/prepare_commits/status", lambda asked, answer: answer.with_json(task_id="another"))
    with pytest.raises(IncompleteAnswerError, match="the answer is about task another"):
        server.prepare_commits("lake", timeout_seconds=60)
