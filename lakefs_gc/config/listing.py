"""Where the listing of the object store comes from, and how many requests it makes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from lakefs_gc.config.section import Section


class ListingSettings(Section):
    """Where the listing of the object store comes from, and how many requests it makes."""

    source: Literal["store", "inventory"] = Field(
        default="store",
        description="store: list the namespace, 1000 objects a request.  inventory: read the newest inventory report "
        "of S3, Azure or Google Cloud Storage, for namespaces whose listing takes too long or costs too much.",
    )
    mode: Literal["clean", "optimized", "auto"] = Field(
        default="clean",
        description="clean: list everything.  optimized: list young slices only, and take the old ones over from the "
        "run before, less what was swept; an error where that is not possible.  auto: optimized where possible.  "
        "An optimized run does not notice objects that others deleted from old slices.",
    )
    margin_hours: float = Field(
        default=168.0,
        gt=0,
        description="An optimized run lists again every slice that was younger than this at the run before: longer "
        "than any upload takes from its beginning, or from the moment that its address was handed out.",
    )
    optimized_runs: int = Field(
        default=10, ge=1, description="So many runs in a row may be optimized; the next one is clean."
    )
    inventory_url: str = Field(
        default="",
        description="With the source inventory: the folder with the reports of one configuration, e.g. "
        "s3://reports/prefix/<source bucket>/<configuration>.  They must cover the whole namespace: their "
        "configuration has no prefix, or one that the namespace begins with.",
    )
    max_inventory_age_hours: float = Field(
        default=48.0,
        gt=0,
        description="Refuse to run on an older report.  An old one is safe, but finds less garbage and has to look up "
        "more objects that were stored since.  Stores write a daily report within 48 hours.",
    )
    requests_at_once: int = Field(
        default=32,
        ge=1,
        le=64,
        description="The most list requests that one Spark task has under way.  It begins with 4, takes more while "
        "that makes it quicker, and half as many when the store says SlowDown.",
    )
    cut_after_pages: int = Field(
        default=24,
        ge=0,
        description="A prefix that has gone on for so many pages of 1000 objects may be cut into key ranges that are "
        "listed at once, which costs about ten requests a cut.  0: never cut.",
    )
    pages_per_range: int = Field(
        default=100,
        ge=0,
        description="A prefix that has gone on for so many pages (four times as many in each later round) is shared "
        "out to all tasks.  A slice of lakeFS has 20.  0: it stays one task's.",
    )

    @model_validator(mode="after")
    def _an_inventory_has_a_place(self) -> ListingSettings:
        if self.source == "inventory" and not self.inventory_url:
            raise ValueError('source = "inventory" needs inventory_url')
        return self
