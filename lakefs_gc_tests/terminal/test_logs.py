"""What the log shows."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from rich.console import Console

from lakefs_gc.engine.progress import LOGGER as PROGRESS_LOGGER
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
    assert PlainFormatter().format(decorated)[8:] == " 3 rows"
    assert json.loads(JSONFormatter().format(decorated))["message"] == "3 rows"


def shown_of_each(
    capsys: pytest.CaptureFixture[str], *, verbose: bool, on_terminal: bool, as_json: bool = False
) -> str:
    console = Console(stderr=True, width=200, force_terminal=on_terminal)
    configure_logging(console, as_json=as_json, verbose=verbose)
    logging.getLogger("lakefs_gc.engine").warning("a warning")
    logging.getLogger("lakefs_gc.engine").info("a stage")
    logging.getLogger("lakefs_gc.engine").debug("a detail")
    logging.getLogger(PROGRESS_LOGGER).info("a progress")
    logging.getLogger("botocore").warning("a noise")
    err = capsys.readouterr().err
    return " ".join(word for word in ("warning", "stage", "detail", "progress", "noise") if f"a {word}" in err)


def test_people_see_warnings_and_the_progress_and_the_rest_with_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown_of_each(capsys, verbose=False, on_terminal=False) == "warning progress"
    assert shown_of_each(capsys, verbose=False, on_terminal=True) == "warning", "the terminal has a line of its own"
    assert shown_of_each(capsys, verbose=True, on_terminal=False) == "warning stage detail progress"
    assert shown_of_each(capsys, verbose=True, on_terminal=True) == "warning stage detail"


def test_machines_see_the_log_without_details(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown_of_each(capsys, verbose=False, on_terminal=False, as_json=True) == "warning stage progress"
