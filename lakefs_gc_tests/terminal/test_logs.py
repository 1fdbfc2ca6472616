"""What the log shows."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from rich.console import Console

from lakefs_gc.terminal.logs import JSONFormatter, PlainFormatter, configure_logging


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("lakefs_gc")
    before = (root.handlers, root.level, ours.level)
    yield
    root.handlers, _, _ = before
    root.setLevel(before[1])
    ours.setLevel(before[2])


def record(**fields: object) -> logging.LogRecord:
    content = {"name": "lakefs_gc.engine", "msg": "%d rows", "args": (3,), "levelno": 20, "levelname": "INFO"}
    return logging.makeLogRecord({**content, **fields})


def test_a_line_for_machines_has_the_fields_of_its_record() -> None:
    line = json.loads(JSONFormatter().format(record(stage="committed")))
    assert (line["message"], line["level"], line["stage"]) == ("3 rows", "INFO", "committed")
    assert set(line) == {"time", "level", "logger", "message", "stage"}


def test_what_dagster_puts_before_a_message_is_left_out() -> None:
    decorated = record(msg="gc_mark - 123 - committed - 3 rows", args=(), dagster_meta={"orig_message": "3 rows"})
    assert PlainFormatter().format(decorated) == "3 rows"
    assert json.loads(JSONFormatter().format(decorated))["message"] == "3 rows"


def test_our_log_is_shown_and_that_of_the_libraries_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Console(stderr=True, width=200), as_json=False, verbose=False)
    logging.getLogger("lakefs_gc.engine").info("a stage")
    logging.getLogger("lakefs_gc.engine").debug("a detail")
    logging.getLogger("botocore").warning("a noise")
    shown = capsys.readouterr().err
    assert "a stage" in shown
    assert "a detail" not in shown
    assert "a noise" not in shown
