"""Logging of the command line: people read lines, machines read JSON, both on standard error."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from rich.console import Console
from rich.logging import RichHandler

# Dagster puts the run and the step before the message of a record that it keeps, and the message itself in here.
_DAGSTER_FIELD = "dagster_meta"
_STANDARD_FIELDS = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", _DAGSTER_FIELD}


class PlainFormatter(logging.Formatter):
    """The message as it was said."""

    def format(self, record: logging.LogRecord) -> str:
        return _said(record)


class JSONFormatter(logging.Formatter):
    """One JSON object a record: time (UTC), level, logger, message, and the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": _said(record),
            **{name: value for name, value in record.__dict__.items() if name not in _STANDARD_FIELDS},
        }
        return json.dumps(content, default=str)


def _said(record: logging.LogRecord) -> str:
    original = getattr(record, _DAGSTER_FIELD, {}).get("orig_message")
    return record.getMessage() if original is None else str(original)


def configure_logging(console: Console, *, as_json: bool, verbose: bool) -> None:
    """Send our log to standard error; warnings of the libraries too."""
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
