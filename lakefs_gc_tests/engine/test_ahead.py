"""Work that begins before its stage changes when something is read, and nothing else."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.ahead import Ahead
from lakefs_gc.engine.collect.references.active_ranges import active_ranges
from lakefs_gc.engine.collect.references.commit_graph import history_so_far, read_history_ahead
from lakefs_gc.engine.collect.references.uncommitted import begin_uncommitted, uncommitted
from lakefs_gc.errors import ServerUnavailableError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository


@pytest.fixture
def collector(spark: SparkSession, repository: LakeRepository) -> Collector:
    repository.put("committed")
    repository.commit()
    repository.keep_days(10)
    return Collector(spark, repository)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the server was asked for its list, and for a page of a log."""
    asked = Counter[str]()

    def count(name: str) -> None:
        original = getattr(LakeFSClient, name)

        def counted(server: LakeFSClient, *arguments: Any, **options: Any) -> Any:
            asked[name] += 1
            return original(server, *arguments, **options)

        monkeypatch.setattr(LakeFSClient, name, counted)

    count("prepare_uncommitted")
    count("log_page")
    return asked


def test_work_is_done_once_and_taken_once() -> None:
    ahead, done, may_end = Ahead(), [], threading.Event()

    def work() -> int:
        assert may_end.wait(60)
        done.append(1)
        return 7

    ahead.begin("run", "list", work)
    ahead.begin("run", "list", work)
    assert ahead.take("another run", "list") is None
    may_end.set()
    assert ahead.take("run", "list") == 7
    assert (ahead.take("run", "list"), done) == (None, [1])


def test_an_error_is_raised_where_the_result_is_taken() -> None:
    ahead = Ahead()
    ahead.begin("run", "list", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        ahead.take("run", "list")
    assert ahead.take("run", "list") is None


def test_a_list_that_was_begun_is_not_requested_again(
    repository: LakeRepository, collector: Collector, calls: Counter[str]
) -> None:
    staged = repository.put("staged")
    collector.materialize("store_listing")
    context, run = collector.context, collector.run
    begin_uncommitted(context, run)
    output = uncommitted(context, run)
    assert [row["address"] for row in output.dataframe.collect()] == [staged]
    assert calls["prepare_uncommitted"] == 1
    uncommitted(context, run)
    assert calls["prepare_uncommitted"] == 2, "a stage that is materialized again reads the present"


def test_a_list_states_when_it_was_begun(collector: Collector, calls: Counter[str]) -> None:
    """Rule 1: a stage that began before the listing had ended is refused."""
    collector.materialize("store_listing")
    context, run = collector.context, collector.run
    before = context.clock()
    begin_uncommitted(context, run)
    while not calls["prepare_uncommitted"]:
        time.sleep(0.01)
    begun = context.clock()
    time.sleep(0.01)
    assert before <= uncommitted(context, run).began_at <= begun


def test_work_in_several_threads_makes_one_client_of_the_server(collector: Collector) -> None:
    started, made = threading.Barrier(2), []

    def connect() -> LakeFSClient:
        time.sleep(0.05)  # so that the other thread asks meanwhile
        made.append(collector.context.server)
        return made[0]

    context = replace(collector.context, connect=connect)

    def work() -> LakeFSClient:
        started.wait(60)
        return context.server

    for name in ("list", "history"):
        context.ahead.begin("run", name, work)
    assert context.ahead.take("run", "list") is context.ahead.take("run", "history")
    assert len(made) == 1


def test_what_is_committed_after_the_history_was_read_is_active(
    repository: LakeRepository, collector: Collector, calls: Counter[str]
) -> None:
    collector.materialize("store_listing", "uncommitted")
    context, run = collector.context, collector.run
    read_history_ahead(context, run, context.server.heads_of(run.repository).values())
    history = history_so_far(context, run)
    assert len(history.commits) == 2
    pages = calls["log_page"]
    context.ahead.begin(run, "history", lambda: history)
    repository.put("later")
    repository.commit()
    output = active_ranges(context, run, collector.dataset("uncommitted"))
    assert output.facts["commits_seen"] == 3
    assert calls["log_page"] == pages + 1, "only the new commit is asked for"


def test_a_history_that_cannot_be_read_ahead_is_read_by_its_stage(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.materialize("store_listing", "uncommitted")
    context, run = collector.context, collector.run
    failed: list[str] = []
    log_page = LakeFSClient.log_page

    def fails_once(server: LakeFSClient, *arguments: Any, **options: Any) -> Any:
        if not failed:
            failed.append("once")
            raise ServerUnavailableError("no answer")
        return log_page(server, *arguments, **options)

    monkeypatch.setattr(LakeFSClient, "log_page", fails_once)
    read_history_ahead(context, run, context.server.heads_of(run.repository).values())
    output = active_ranges(context, run, collector.dataset("uncommitted"))
    assert (failed, output.facts["commits_seen"]) == (["once"], 2)
