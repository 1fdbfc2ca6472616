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
        description="manual: a person materializes sweep_approval.  after: delay_hours after the "
        "mark was made.  immediately: as soon as the sensor sees the mark.",
    )
    delay_hours: float = Field(
        default=24.0, gt=0, description="With the policy 'after': how long a person has to look at the mark."
    )
    objects_per_request: int = Field(
        default=1000, ge=1, le=1000, description="Keys in one bulk delete; 1000 is the most that S3 takes."
    )
    requests_at_once: int = Field(
        default=16,
        ge=1,
        le=64,
        description="Bulk deletes under way at once in a Spark task, at most.  A task begins with few, takes on more "
        "while that is quicker, and takes back half when the store says SlowDown.",
    )
    max_requests_per_second: float = Field(
        default=0.0,
        ge=0,
        description="Ceiling on a sweep's requests to the store, all tasks together; 0 is none.  For a store that "
        "others use at the same time.",
    )
    objects_per_look: int = Field(
        default=100_000,
        ge=1,
        description="After so many objects a sweep looks again at what is referenced.",
    )
    max_look_age_minutes: float = Field(
        default=15.0,
        gt=0,
        description="No bulk delete is begun on the word of a look that began longer ago than this by the store's "
        "clock, however slow the store is and however long Spark's tasks wait; one that has begun may "
        "still be tried for a minute and a half.  What is left is looked at again; a sweep that can delete nothing in "
        "that time ends with an error, and sweeping again goes on.",
    )
    retries: int = Field(
        default=2, ge=0, description="How many times a sweep comes back to the deletes that the store refused."
    )
    retry_pause_seconds: float = Field(
        default=5.0, ge=0, description="How long it waits before that; twice as long each time."
    )
    delete_versions: bool = Field(
        default=False,
        description="In a bucket that keeps versions, delete every version and delete marker of a swept object, for "
        "good.  Nothing of S3's own brings them back then; a backup of ours does.  What was written again since the "
        "mark keeps all its versions.",
    )

    @property
    def policy_delay_hours(self) -> float:
        """How old a mark must be before the policy sweeps it."""
        return self.delay_hours if self.policy == "after" else 0.0
