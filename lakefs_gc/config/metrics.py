"""Where the metrics for Prometheus go."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from lakefs_gc.config.section import Section, checked_url


class MetricsSettings(Section):
    """Where the sensor `metrics` writes what the marks and sweeps of the repositories have done."""

    textfile: str = Field(
        default="",
        description="File for the textfile collector of node_exporter, e.g. "
        "/var/lib/node_exporter/textfile/lakefs_gc.prom. It is replaced as a whole. Empty: no file.",
    )
    pushgateway_url: str = Field(
        default="", description="URL of a Pushgateway that receives the same metrics. Empty: none is sent."
    )
    marks: int = Field(default=20, ge=1, description="Newest marks of each repository that are read.")

    @field_validator("textfile")
    @classmethod
    def _is_absolute(cls, path: str) -> str:
        if path and not (Path(path).is_absolute() and path.endswith(".prom")):
            raise ValueError(f"{path!r} is not an absolute path that ends in .prom, which node_exporter requires")
        return path

    @field_validator("pushgateway_url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        return checked_url(url, "http://", "https://")

    @property
    def is_on(self) -> bool:
        """Return whether there is a receiver."""
        return bool(self.textfile or self.pushgateway_url)
