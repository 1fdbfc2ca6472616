"""Metrics for Prometheus: what is unknown is not zero, and a receiver that fails is an error."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from dagster import DagsterInstance, SkipReason, build_sensor_context
from prometheus_client.parser import text_string_to_metric_families

from lakefs_gc.config import MetricsSettings
from lakefs_gc.engine.records.ledger import (
    DELETED,
    FAILED,
    INTENT,
    RECORD,
    RESURRECTED,
    LedgerWriter,
    sequence_of,
)
from lakefs_gc.engine.records.ledger import OUTCOMES as OUTCOMES_OF_LEDGER
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.sweep.outcomes import Outcome, SweepResult
from lakefs_gc.errors import NotificationError
from lakefs_gc.pipeline.automation.metrics_sensor import metrics_sensors
from lakefs_gc.pipeline.names import Names
from lakefs_gc.report.metrics import RepositoryRecords, deliver, metrics_of
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lake_fixtures import lake_of_environment
from lakefs_gc_tests.support.repository_with_garbage import with_garbage
from lakefs_gc_tests.support.sample_mark import NOW

__all__ = ["lake_of_environment"]


def mark(mark_id: str, day: int, state: str, **facts: Any) -> dict[str, Any]:
    return {"mark_id": mark_id, "created_at": f"2026-03-{day:02d}T00:00:00+00:00", "state": state} | {
        "failed_checks": [],
        **facts,
    }


ROOT = Path(__file__).parents[2]
DAY_SECONDS = 86_400.0
MARCH_SECONDS = 1_772_323_200.0  # 1 March 2026, UTC
DAMAGED = {"mark_id": "m4", "created_at": "", "state": "unreadable: the manifest is damaged"}
OUTCOMES = {"deleted": {"objects": 5, "size_bytes": 50}, "failed": {"objects": 1, "size_bytes": 7}}
LAKE = RepositoryRecords(
    "lake",
    (
        mark("m5", 9, "blocked", failed_checks=["share_of_bytes"]),
        DAMAGED,
        mark("m3", 7, "marked"),
        mark("m2", 5, "incomplete", outcomes=OUTCOMES),
        mark("m1", 3, "swept", outcomes={"deleted": {"objects": 9, "size_bytes": 90}}),
    ),
    {"expired": {"objects": 2, "size_bytes": 20}, "never_committed": {"objects": 3, "size_bytes": 30}},
    OUTCOMES,
)


def written(path: Path) -> dict[tuple[str, ...], float]:
    """Return the samples of a file: name, repository and further labels to value."""
    families = text_string_to_metric_families(path.read_text())
    return {
        (sample.name.removeprefix("lakefs_gc_"), *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_file_has_the_records_of_each_repository(tmp_path: Path) -> None:
    file = tmp_path / "lakefs_gc.prom"
    file.write_text("replaced as a whole")
    unknown = RepositoryRecords("other", unreadable="access denied")
    deliver(metrics_of([LAKE, unknown]), MetricsSettings(textfile=str(file)))
    assert written(file) == {
        ("records_readable", "lake"): 1,
        ("records_readable", "other"): 0,
        ("unreadable_marks", "lake"): 1,
        ("last_mark_timestamp_seconds", "lake"): MARCH_SECONDS + 8 * DAY_SECONDS,
        ("last_swept_mark_timestamp_seconds", "lake"): MARCH_SECONDS + 2 * DAY_SECONDS,
        ("oldest_unapproved_mark_timestamp_seconds", "lake"): MARCH_SECONDS + 6 * DAY_SECONDS,
        ("mark_state", "blocked", "lake"): 1,
        ("failed_check", "lake", "share_of_bytes"): 1,
        ("marked_objects", "expired", "lake"): 2,
        ("marked_objects", "lake", "never_committed"): 3,
        ("marked_bytes", "expired", "lake"): 20,
        ("marked_bytes", "lake", "never_committed"): 30,
        ("swept_objects", "deleted", "lake"): 5,
        ("swept_objects", "failed", "lake"): 1,
        ("swept_bytes", "deleted", "lake"): 50,
        ("swept_bytes", "failed", "lake"): 7,
    }


def exported() -> dict[str, set[str]]:
    """Return the names of all metrics, with the labels of each."""
    samples = [sample for family in metrics_of([LAKE]).collect() for sample in family.samples]
    return {sample.name: set(sample.labels) for sample in samples}


def test_the_dashboard_asks_for_metrics_and_labels_that_exist() -> None:
    metrics = exported()
    dashboard = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text("utf-8"))
    variable = next(each for each in dashboard["templating"]["list"] if each["type"] == "query")
    [(metric, label)] = re.findall(r"^label_values\((\w+), (\w+)\)$", variable["query"])
    assert label in metrics[metric]
    queries = [target for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) >= len(dashboard["panels"])
    for query in queries:
        [metric] = re.findall(r"lakefs_gc_\w+", query["expr"])
        labels = re.findall(r"(\w+)=~?\"", query["expr"]) + re.findall(r"{{(\w+)}}", query["legendFormat"])
        assert set(labels) <= metrics[metric], query["expr"]


def test_the_guide_names_all_metrics_and_no_others() -> None:
    page = (ROOT / "docs" / "guides" / "schedule-and-sensors.md").read_text("utf-8")
    assert set(re.findall(r"lakefs_gc_\w+", page)) == {*exported()}


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotificationError, match="cannot be written") as failure:
        deliver(metrics_of([LAKE]), MetricsSettings(textfile=str(tmp_path / "missing" / "a.prom")))
    assert str(tmp_path / "missing") in failure.value.remedy


@pytest.mark.parametrize("path", ["a.prom", "/tmp/metrics.txt"])
def test_a_file_that_node_exporter_would_not_read_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"absolute path that ends in \.prom"):
        MetricsSettings(textfile=path)


class Gateway(BaseHTTPRequestHandler):
    """A Pushgateway that keeps what it got, and answers with ``status``."""

    got: list[tuple[str, str]]
    status = 202

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.append((self.path, body.decode()))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def gateway() -> Iterator[tuple[type[Gateway], str]]:
    handler = type("OneGateway", (Gateway,), {"got": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield handler, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_pushgateway_gets_the_same(gateway: tuple[type[Gateway], str]) -> None:
    handler, url = gateway
    deliver(metrics_of([LAKE]), MetricsSettings(pushgateway_url=url))
    ((path, body),) = handler.got
    assert path == "/metrics/job/lakefs-gc"
    assert 'lakefs_gc_swept_objects{outcome="failed",repository="lake"} 1.0' in body
    handler.status = 500
    with pytest.raises(NotificationError, match="did not take the metrics"):
        deliver(metrics_of([LAKE]), MetricsSettings(pushgateway_url=url))


def test_the_sensor_writes_what_it_can_read(lake: Lake, tmp_path: Path) -> None:
    lake.repository("empty")
    file = tmp_path / "lakefs_gc.prom"
    settings = lake.settings.model_copy(
        update={"repositories": ("empty", "missing"), "metrics": MetricsSettings(textfile=str(file))}
    )
    [sensor] = metrics_sensors(settings, Names(("team",)))
    assert sensor.name == "team__metrics"
    with DagsterInstance.ephemeral() as instance:
        told = sensor(build_sensor_context(instance))
    assert written(file) == {
        ("records_readable", "empty"): 1,
        ("records_readable", "missing"): 0,
        ("unreadable_marks", "empty"): 0,
    }
    assert isinstance(told, SkipReason)
    assert "missing" in str(told.skip_message)


def recorded(writer: LedgerWriter, chunk: int, outcome: str, *addresses: str) -> None:
    rows = [{"address": address, "size": 3, "outcome": outcome, "error": ""} for address in addresses]
    records = pa.RecordBatch.from_pylist(rows, schema=RECORD)
    write = writer.chunk(chunk).intent if outcome == INTENT else writer.chunk(chunk).outcome
    write(records)


@pytest.mark.parametrize("before", ["nothing", "a sweep that ended"])
def test_what_a_killed_sweep_deleted_counts(lake: Lake, tmp_path: Path, before: str) -> None:
    repository = with_garbage(lake.repository())
    garbage = sorted(key for key in repository.objects() if "garbage" in key)
    write_client_mark(repository.store, UNIFIED, garbage, cutoff=NOW)
    mark_id = "m1"
    paths = MarkPaths.of(mark_id)
    repository.store.put(paths.approval, b"{}")
    if before != "nothing":
        result = SweepResult(mark_id, "", {name: Outcome(int(name == FAILED), 0) for name in OUTCOMES_OF_LEDGER})
        repository.store.put(paths.sweep_summary, result.to_json(NOW, NOW))
        assert swept(lake, tmp_path)["failed"] == 1
        time.sleep(0.01)  # the summary is older than the records that follow
    writer = LedgerWriter(repository.store, paths.ledger, 0, sequence_of(NOW, 1, Scope.all))
    recorded(writer, 0, INTENT, *garbage)
    recorded(writer, 0, DELETED, garbage[0])
    recorded(writer, 1, RESURRECTED, "data/live")
    found = swept(lake, tmp_path)
    assert {name: count for name, count in found.items() if count} == {DELETED: 1, INTENT: 1, RESURRECTED: 1}


def swept(lake: Lake, folder: Path) -> dict[str, float]:
    """Return ``lakefs_gc_swept_objects`` of the repository by outcome, as the sensor writes them."""
    file = folder / "lakefs_gc.prom"
    settings = {"repositories": ("lake",), "metrics": MetricsSettings(textfile=str(file))}
    [sensor] = metrics_sensors(lake.settings.model_copy(update=settings))
    with DagsterInstance.ephemeral() as instance:
        sensor(build_sensor_context(instance))
    samples = written(file)
    assert samples["records_readable", "lake"] == 1
    outcomes = {key: value for key, value in samples.items() if key[0] == "swept_objects"}
    return {next(label for label in key[1:] if label != "lake"): value for key, value in outcomes.items()}


def test_there_is_no_sensor_without_a_receiver(lake: Lake) -> None:
    assert metrics_sensors(lake.settings) == []
