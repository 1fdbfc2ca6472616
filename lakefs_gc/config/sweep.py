"""When and how a mark is swept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lakefs_gc.config.section import Section

SweepPolicy = Literal["manual", "after", "immediately"]
MANUAL: SweepPolicy = "manual"


class SweepSettings(Section):
    """When and how a mark is swept."""

    policy: SweepPolicy = Field(
        default="manual",
        description="When a mark is swept. manual: after a person materializes sweep_approval or approves the mark on "
        "the command line. after: the sensor approves the mark delay_hours after it was written. immediately: the "
        "sensor approves the mark as soon as it sees it. A mark with a failed check always waits for a person.",
    )
    delay_hours: float = Field(
        default=24.0,
        gt=0,
        description="Hours that a person has to review a mark before the policy `after` sweeps it. Without effect for "
        "other policies. A smaller value frees space earlier and leaves less time to notice a wrong mark.",
    )
    objects_per_request: int = Field(
        default=1000,
        ge=1,
        le=1000,
        description="Keys in one bulk delete request (1 to 1,000, the maximum of S3). Lower it only if the store "
        "rejects large requests; a smaller value needs more requests.",
    )
    requests_at_once: int = Field(
        default=16,
        ge=1,
        le=64,
        description="Maximum number of bulk deletes that one Spark task has in progress (1 to 64). A task starts with "
        "few, adds more while that is faster, and halves the number when the store answers SlowDown. Lower it if "
        "other applications use the same bucket.",
    )
    max_requests_per_second: float = Field(
        default=0.0,
        ge=0,
        description="Maximum rate of a sweep's requests to the store, in requests per second for all tasks together. "
        "0: no limit. Set it if other applications use the same store; a small value makes the sweep slower.",
    )
    objects_per_look: int = Field(
        default=100_000,
        ge=1,
        description="Number of objects that a sweep handles before it takes another second look, that is, reads again "
        "everything that is referenced. A smaller value shortens the time between a second look and the deletes that "
        "rely on it. A larger value makes fewer requests to the lakeFS server.",
    )
    max_look_age_minutes: float = Field(
        default=15.0,
        gt=0,
        description="Minutes, by the store's clock. No bulk delete begins if its second look began longer ago than "
        "this; a delete that has begun may be retried for 90 seconds more. The remaining objects get a new second "
        "look. If nothing can be deleted within this time, the sweep ends with an error, and the next sweep "
        "continues. A larger value is less safe: an object may become referenced in the meantime.",
    )
    retries: int = Field(
        default=2,
        ge=0,
        description="How many times a sweep repeats the deletes that the store refused, each time after a new second "
        "look. 0: never. Objects that are still refused are recorded as failed, and the next sweep tries them again.",
    )
    retry_pause_seconds: float = Field(
        default=5.0,
        ge=0,
        description="Seconds before the first of the `retries`. The pause doubles with every further one. A larger "
        "value gives an overloaded store more time to recover.",
    )
    delete_versions: bool = Field(
        default=False,
        description="In a bucket with versioning, delete every version and delete marker of a swept object "
        "permanently. Set it to true if space must be freed or data must be erased at once. S3 cannot restore these "
        "objects; only a backup made by lakefs-gc can. An object that was rewritten after the mark keeps all its "
        "versions. false: a sweep adds delete markers, and space is freed by the bucket's lifecycle rules.",
    )

    @property
    def policy_delay_hours(self) -> float:
        """Return the age in hours that a mark must have before the policy sweeps it."""
        return self.delay_hours if self.policy == "after" else 0.0
