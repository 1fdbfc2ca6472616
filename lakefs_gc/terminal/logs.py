"""Logging of the command line on standard error: lines for people, or JSON for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from functools import partial

from rich.console import Console
from rich.text import Text

from lakefs_gc.engine.progress import LOGGER as PROGRESS_LOGGER

# Dagster prefixes the message of a record with its run and step, and keeps the original message in this field.
_DAGSTER_FIELD = "dagster_meta"
_STANDARD_FIELDS = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", _DAGSTER_FIELD}


class PlainFormatter(logging.Formatter):
    """The time and the message without Dagster's prefix."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{datetime.fromtimestamp(record.created):%H:%M:%S} {_message(record)}"


class ConsoleHandler(logging.Handler):
    """Prints records above the line of the progress, and without the padding of rich's own handler."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._console.print(Text(self.format(record)), soft_wrap=True)
        except Exception:
            self.handleError(record)


class JSONFormatter(logging.Formatter):
    """One JSON object a record: time (UTC), level, logger, message, and the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
            **{name: value for name, value in record.__dict__.items() if name not in _STANDARD_FIELDS},
        }
        return json.dumps(content, default=str)


def _message(record: logging.LogRecord) -> str:
    original = getattr(record, _DAGSTER_FIELD, {}).get("orig_message")
    return record.getMessage() if original is None else str(original)


def _is_for_people(record: logging.LogRecord, *, verbose: bool, on_terminal: bool) -> bool:
    if record.levelno >= logging.WARNING:
        return True
    if record.name == PROGRESS_LOGGER:
        return not on_terminal
    return verbose


def configure_logging(console: Console, *, as_json: bool, verbose: bool) -> None:
    """Send the log of lakefs-gc, and warnings of libraries, to standard error.

    People see what each stage does with ``verbose`` only. Otherwise they see warnings and, unless the terminal shows
    the progress in one line, the lines of the progress.
    """
    handler: logging.Handler
    if as_json:
        handler = logging.StreamHandler()
        handler.setFormatter(JSONFormatter())
    else:
        handler = ConsoleHandler(console)
        handler.setFormatter(PlainFormatter())
        handler.addFilter(partial(_is_for_people, verbose=verbose, on_terminal=console.is_terminal))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for ours in ("lakefs_gc", "lakefs_gc.engine"):  # Dagster sets the level of the first during a run
        logging.getLogger(ours).setLevel(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("py4j", "pyspark", "urllib3", "botocore", "dagster"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
