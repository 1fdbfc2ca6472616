"""The Python API for notebooks: the marks of a repository and their objects, explanations, proofs, and forecasts.

    import lakefs_gc

    marks = lakefs_gc.marks("my-repo")
    marks.to_pandas()

Settings and credentials are those of the command line: ``config``, ``LAKEFS_GC_CONFIG`` or ``lakefs-gc.toml`` in the
working directory, and ``LAKECTL_*`` or ``~/.lakectl.yaml``. Nothing here deletes an object, or approves a mark. Every
method reads anew, and raises the errors of ``lakefs_gc.errors``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from lakefs_gc.cli.explanations import sources_of
from lakefs_gc.cli.mark_reports import find_mark, history
from lakefs_gc.config import Settings, load_settings
from lakefs_gc.engine.explain.answers import Explanation
from lakefs_gc.engine.explain.erasure import ErasureProof, prove_erased
from lakefs_gc.engine.explain.explain import explain
from lakefs_gc.engine.forecast.facts import DAYS_AHEAD, forecast_facts
from lakefs_gc.engine.forecast.outlook import Forecast, Outlook, curve, outlook
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_parts import read_part
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.formats.gc_rules import GCRules

if TYPE_CHECKING:  # Spark and Dagster take seconds to load, and most calls need neither
    from pyspark.sql import DataFrame, SparkSession


def marks(repository: str, *, config: Path | str | None = None) -> Marks:
    """Return the marks of a repository. Reads the settings, and sends no request.

    ``config`` is a configuration file. Raise ``ConfigurationError`` if it cannot be used.
    """
    return Marks(repository, load_settings(Path(config) if config is not None else None))


@dataclass(frozen=True)
class Marks:
    """The marks of a repository, newest first."""

    repository: str
    settings: Settings = field(repr=False)

    def __iter__(self) -> Iterator[StoredMark]:
        """Yield each mark that can be read. ``to_pandas`` also names the others."""
        for row in history(self.settings, self.repository):
            if row["created_at"]:
                yield self.mark(row["mark_id"])

    def mark(self, mark_id: str) -> StoredMark:
        """Return one mark."""
        return StoredMark(self.repository, mark_id, self.settings)

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each mark, with the columns of ``lakefs-gc history --json``; times are UTC."""
        table = pd.DataFrame(history(self.settings, self.repository))
        for column in ("created_at", "cutoff"):
            if column in table:
                table[column] = pd.to_datetime(table[column], utc=True)
        return table

    def explain(self, *objects: str, thorough: bool = False) -> list[Explanation]:
        """Explain objects: addresses, relative or whole, or ``lakefs://repo/ref/path``. One read for all of them.

        ``thorough`` looks at everything that was staged since the last run, however much it is.
        """
        return explain(sources_of(self.settings, self.repository), objects, thorough=thorough)

    def prove_erased(self, *paths: str, no_backups: bool = False) -> ErasureProof:
        """Report whether every object that was ever at these paths is erased, as ``lakefs-gc prove-erased`` does.

        ``no_backups``: you state that no backups exist. One small file below ``_lakefs/`` is written, and deleted.
        """
        return prove_erased(sources_of(self.settings, self.repository), paths, no_backups=no_backups)

    def forecast(self, retention: Mapping[str, int] | None = None, *, fresh: bool = False) -> RepositoryForecast:
        """Return what the present rules, and those of ``retention``, free now and later.

        ``retention`` maps ``default`` and branches to days. Starts Spark if no run of the last days has the data.
        ``fresh``: list the store anew in any case. Raise ``ConfigurationError`` for rules that cannot be evaluated.
        """
        from lakefs_gc.cli.commands.forecast import parse_retention
        from lakefs_gc.cli.forecast_runs import forecast
        from lakefs_gc.terminal.output import Output

        asked = parse_retention(",".join(f"{branch}={days}" for branch, days in (retention or {}).items()))
        made = forecast(self.settings, Output(as_json=True), self.repository, asked, fresh)
        return RepositoryForecast(self.repository, made, asked)


@dataclass(frozen=True)
class RepositoryForecast:
    """What retention rules free in a repository, as of the run whose data were used. See ``lakefs-gc forecast``.

    It assumes that no commit, upload, branch or tag is added or removed after the run.
    """

    repository: str
    forecast: Forecast = field(repr=False)
    """The table behind the answers, with the rules at the time of the run."""
    asked_rules: GCRules | None = None

    @property
    def as_of(self) -> datetime:
        """When the run began that listed the store."""
        return datetime.fromisoformat(self.forecast.facts["as_of"])

    @property
    def present(self) -> tuple[Outlook, ...]:
        """What the present rules free now, in 30 and in 90 days, and what holds the rest."""
        return self._outlooks(self.forecast.rules)

    @property
    def asked(self) -> tuple[Outlook, ...] | None:
        """The same for the rules that were asked for. None if none were."""
        return None if self.asked_rules is None else self._outlooks(self.asked_rules)

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for each set of rules (``present``, ``asked``) and time.

        Columns: ``rules``, ``days`` (after the run), ``objects``, ``size_bytes``, ``unknown_bytes``.
        """
        rows = [
            {"rules": rules, "days": each.days, **each.total.to_facts(), "unknown_bytes": each.unknown.size_bytes}
            for rules, outlooks in (("present", self.present), ("asked", self.asked))
            for each in outlooks or ()
        ]
        return pd.DataFrame(rows)

    def curve(self) -> pd.DataFrame:
        """Return what a rule of N days for all branches frees now: ``days`` (N), ``objects``, ``size_bytes``.

        A row for each N at which the result changes. It holds until the next row.
        """
        return pd.DataFrame({"days": days, **total.to_facts()} for days, total in curve(self.forecast))

    def to_facts(self) -> dict[str, Any]:
        """Return the JSON of ``lakefs-gc forecast --json``."""
        facts = forecast_facts(self.forecast, self.asked_rules, is_asked=self.asked_rules is not None)
        return {"repository": self.repository, **facts}

    def _outlooks(self, rules: GCRules | None) -> tuple[Outlook, ...]:
        return tuple(outlook(self.forecast, rules, days) for days in DAYS_AHEAD)


@dataclass(frozen=True)
class StoredMark:
    """A mark in the namespace of its repository. Its manifest is verified when it is first read."""

    repository: str
    mark_id: str
    settings: Settings = field(repr=False)

    @cached_property
    def _marked(self) -> Marked:
        return find_mark(self.settings, self.repository, self.mark_id)

    @property
    def manifest(self) -> Mark:
        """The manifest: cutoff, digest, counts, checks, rules."""
        return self._marked.mark

    def objects(self) -> Iterator[pd.DataFrame]:
        """Yield the marked objects: ``address``, ``size`` (bytes), ``last_modified`` (UTC), ``reason``.

        One DataFrame for each file of the mark, up to 250,000 rows, so that a mark of any size fits in memory. Raise
        ``MarkError`` if a file was changed since the mark was made.
        """
        for part in self.manifest.parts:
            yield read_part(self._marked.store, part).to_pandas()

    def to_spark(self, session: SparkSession | None = None) -> DataFrame:
        """Return the marked objects as a Spark DataFrame, with the columns of ``objects``.

        ``session``: the default is the active session, or a new one with the Spark settings of the configuration.
        """
        from pyspark.sql import SparkSession

        from lakefs_gc.engine.records.mark_objects import read_marked
        from lakefs_gc.engine.spark.session import start_spark

        spark = session or SparkSession.getActiveSession() or start_spark(dict(self.settings.spark))
        return read_marked(spark, self._marked.store.location, self.manifest)
