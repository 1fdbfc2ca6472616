"""Logging of the command line on standard error: lines for people, or JSON for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from rich.console import Console
from rich.logging import RichHandler

# Dagster prefixes the message of a record with its run and step, and keeps the original message in this field.
_DAGSTER_FIELD = "dagster_meta"
_STANDARD_FIELDS = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", _DAGSTER_FIELD}


class PlainFormatter(logging.Formatter):
    """The message without Dagster's prefix."""

    def format(self, record: logging.LogRecord) -> str:
        return _message(record)


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


def configure_logging(console: Console, *, as_json: bool, verbose: bool) -> None:
    """Send the log of lakefs-gc, and warnings of libraries, to standard error."""
    handler: logging.Handler
    if as_json:
        handler = logging.StreamHandler()
        handler.setFormatter(JSONFormatter())
    else:
        handler = RichHandler(
            console=console, show_path=False, show_level=False, log_time_format="%H:%M:%S", omit_repeated_times=False
        )
        handler.setFormatter(PlainFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("lakefs_gc").setLevel(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("py4j", "pyspark", "urllib3", "botocore", "dagster"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
