"""A proxy before the server may answer 404 for what exists: that does not prove that a branch shows nothing."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references import uncommitted
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import Answered, LakeFSProxy, refusal

OF_AN_INGRESS = Answered(404, b"404 page not found\n", {"Content-Type": "text/plain"})


def behind(spark: SparkSession, repository: LakeRepository, proxy: LakeFSProxy) -> Collector:
    credentials = repository.lake.credentials.model_copy(update={"endpoint_url": proxy.url})
    return Collector(spark, repository, server=LakeFSClient(credentials, sleep=lambda seconds: None))


def hide_a_twin(repository: LakeRepository) -> None:
    repository.put("path", "content")
    repository.commit()
    repository.keep_days(10)
    repository.put("path", "content")


def test_a_twin_that_an_ingress_does_not_find_ends_the_run(
    spark: SparkSession, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    """While pods are replaced an ingress answers by itself, 404 for every path."""
    hide_a_twin(repository)
    proxy.fail("/objects/stat", *[OF_AN_INGRESS] * 100)
    collector = behind(spark, repository, proxy)
    with pytest.raises(LakeFSGCError, match="404"):
        collector.sweep(collector.collect_and_mark())
    assert repository.read("path") == b"content"


def test_a_twin_that_a_gateway_does_not_find_is_found_in_the_list(
    spark: SparkSession, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    """Some gateways answer 404 with a JSON message of their own."""
    hide_a_twin(repository)
    proxy.fail("/objects/stat", *[refusal(404, "no route matched with those values")] * 100)
    collector = behind(spark, repository, proxy)
    collector.sweep(collector.collect_and_mark())
    assert repository.read("path") == b"content"


def test_a_branch_that_is_not_found_and_listed_ends_the_run(
    spark: SparkSession, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    hide_a_twin(repository)
    proxy.fail("/objects/stat", *[refusal(404, "not found")] * 100)
    proxy.fail("/objects/ls", *[refusal(404, "not found")] * 100)
    collector = behind(spark, repository, proxy)
    with pytest.raises(LakeFSGCError, match="but branch main exists"):
        collector.sweep(collector.collect_and_mark())
    assert repository.read("path") == b"content"


def test_a_gateway_that_finds_nothing_at_all_ends_the_run(
    spark: SparkSession, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    """It answers 404 with a message in JSON, also for the list that would prove that a branch is deleted."""
    hide_a_twin(repository)
    collector = behind(spark, repository, proxy)
    collector.collect(until="missing")
    for call in ("/objects/stat", "/objects/ls"):
        proxy.fail(call, *[refusal(404, "no route matched with those values")] * 100)
    proxy.spoil.append(
        lambda asked, real: (
            refusal(404, "no route") if "prefix=main" in asked.path and "/branches" in asked.path else None
        )
    )
    with pytest.raises(LakeFSGCError, match="whether branch main exists is unknown"):
        collector.materialize("kept")


@pytest.mark.parametrize("answer", [OF_AN_INGRESS, refusal(404, "branch not found")])
def test_changes_of_a_branch_that_is_there(
    spark: SparkSession,
    repository: LakeRepository,
    proxy: LakeFSProxy,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answered,
) -> None:
    """A list without rows, and a branch that is said to be gone and is not."""
    repository.put("committed")
    repository.commit()
    repository.keep_days(10)
    repository.put("path", "content")
    monkeypatch.setattr(uncommitted, "_files", lambda *_: [])
    proxy.fail("/branches/main/diff", *[answer] * 100)
    collector = behind(spark, repository, proxy)
    with pytest.raises(LakeFSGCError):
        collector.sweep(collector.collect_and_mark())
    assert repository.read("path") == b"content"
