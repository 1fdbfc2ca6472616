"""The settings of the listing: where it comes from, and how many requests it makes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from lakefs_gc.config.section import Section
from lakefs_gc.storage.urls import https_of_hadoop


class ListingSettings(Section):
    """Where the listing of the object store comes from, and how many requests it makes."""

    source: Literal["store", "inventory"] = Field(
        default="store",
        description="Source of the listing. store: list the storage namespace, 1,000 objects per request. inventory: "
        "read the newest inventory report of S3, Azure or Google Cloud Storage. Use inventory if a listing takes too "
        "long or costs too much. An inventory is older than a listing, so less garbage is found.",
    )
    mode: Literal["clean", "optimized", "auto"] = Field(
        default="clean",
        description="Which part of the namespace is listed. clean: a full listing. optimized: an optimized listing, "
        "which lists only recent slices and takes the older ones from the previous run, without the objects that were "
        "swept; an error if no previous run can be used. auto: optimized if possible, otherwise clean. An optimized "
        "listing costs fewer requests, but does not notice objects that other programs deleted from older slices.",
    )
    margin_hours: float = Field(
        default=168.0,
        gt=0,
        description="Hours. An optimized listing lists again every slice that was newer than this when the previous "
        "run started. It must be longer than any upload takes, counted from its beginning or from the moment its "
        "address was issued. A smaller value saves requests; an object that is uploaded later than this is not found "
        "as garbage until the next full listing.",
    )
    optimized_runs: int = Field(
        default=10,
        ge=1,
        description="Number of consecutive runs that may use an optimized listing. The run after them makes a full "
        "listing. A larger value saves requests, and delays the moment when differences from the store are noticed.",
    )
    inventory_url: str = Field(
        default="",
        description="Folder with the inventory reports, e.g. "
        "s3://reports/prefix/<source bucket>/<configuration>, https://ACCOUNT.blob.core.windows.net/container (or "
        "abfss://container@ACCOUNT.dfs.core.windows.net) or gs://bucket/inventory_reports. Required if source is "
        "inventory. The reports must cover the whole storage namespace: their configuration has no prefix, or one that "
        "the namespace begins with.",
    )
    max_inventory_age_hours: float = Field(
        default=48.0,
        gt=0,
        description="Hours. A run fails if the newest inventory report is older than this. Stores deliver a daily "
        "report within 48 hours. A larger value is safe, but an older report yields less garbage and more lookups of "
        "objects that were stored since.",
    )
    requests_at_once: int = Field(
        default=32,
        ge=1,
        le=64,
        description="Maximum number of list requests that one Spark task has in progress (1 to 64). A task starts with "
        "4, adds more while that is faster, and halves the number when the store answers SlowDown. Lower it if other "
        "applications use the same bucket.",
    )
    cut_after_pages: int = Field(
        default=24,
        ge=0,
        description="Pages of 1,000 objects. A prefix with more pages than this may be divided into key ranges that "
        "are listed at the same time, which costs about ten extra requests per division. A smaller value makes large "
        "prefixes faster and costs more requests. 0: never divide a prefix.",
    )
    pages_per_range: int = Field(
        default=100,
        ge=0,
        description="Pages of 1,000 objects. A prefix with more pages than this is distributed to all Spark tasks; in "
        "each later round the limit is four times as high. A slice of lakeFS has 20 pages. A smaller value uses more "
        "tasks for a large prefix. 0: one task lists the whole prefix.",
    )

    @field_validator("inventory_url")
    @classmethod
    def _as_https(cls, url: str) -> str:
        return https_of_hadoop(url)

    @model_validator(mode="after")
    def _inventory_has_a_url(self) -> ListingSettings:
        if self.source == "inventory" and not self.inventory_url:
            raise ValueError('source = "inventory" requires inventory_url')
        return self
