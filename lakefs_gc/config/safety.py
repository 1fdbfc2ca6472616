"""The timings and limits that keep live data safe, and what users protect (rule 11)."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from lakefs_gc.config.section import Section


class Protections(Section):
    """What is kept beyond the server's retention rules.  Each can only keep more."""

    tags: tuple[str, ...] = Field(
        default=(), description='Patterns of tags, e.g. ["release-*"]: the commit of each such tag is active.'
    )
    branches: tuple[str, ...] = Field(
        default=(), description="Patterns of branches: every commit in the history of each such branch is active."
    )
    days: float = Field(
        default=0,
        ge=0,
        description="Every commit younger than this many days that a branch or a tag leads to is active, and so is "
        "what any metarange names that the store was given in these days: so commits of deleted branches are kept.  Of "
        "those, one is not kept whose metarange is older: its very content had been committed before.",
    )
    last_commits: int = Field(
        default=0, ge=0, description="The last so many commits of each branch, by first parents, are active."
    )
    path_prefixes: tuple[str, ...] = Field(
        default=(),
        description='Prefixes of paths, e.g. ["audit/"]: what any commit has there is never collected, however old the '
        "commit.",
    )

    @property
    def of_commits(self) -> bool:
        """Whether some commit may be protected."""
        return bool(self.tags or self.branches or self.days or self.last_commits)


class SafetyParameters(Section):
    """All timings and limits that keep live data safe (rule 11).  A smaller number is less safe unless it says so."""

    min_age_hours: float = Field(
        default=24.0,
        ge=0,
        description="Objects younger than this when the run starts are never candidates.  The server's grace period "
        "(24 h unless it was changed) is the floor: an upload link is valid that long, so a younger object "
        "may be waiting for its link.",
    )
    allow_min_age_below_grace: bool = Field(
        default=False,
        description="Let min_age_hours go below the server's grace period.  Only right when nobody uploads: an object "
        "that was uploaded and is not linked yet would be deleted.",
    )
    max_clock_skew_seconds: float = Field(
        default=300.0,
        gt=0,
        description="Refuse to run when this machine's clock and the store's differ by more (a greater number is less "
        "safe).  Five minutes is what S3 itself tolerates in signatures, within a factor of three.  It is asked when a "
        "run, a stage or a sweep begins.",
    )
    check_foreign_references: bool = Field(
        default=True,
        description="Read the metadata of every other repository that these credentials can see, and keep what they "
        "refer to by full address.  Costs a read of each of their ranges.  When it is off, each mark needs an override "
        "of other_repositories_were_read.",
    )
    repositories_not_read: tuple[str, ...] = Field(
        default=(),
        description="Names of other repositories whose store will never answer from here: they are not asked, and "
        "each mark warns that they may refer to its objects.  Only right when nothing was imported to them.  One "
        "that cannot be read and is not named here blocks every sweep.",
    )
    protect: Protections = Protections()
    longest_commit_minutes: float = Field(
        default=10.0,
        ge=0,
        description="No sweep looks again earlier than this, and twice max_clock_skew_seconds on top, after its mark "
        "was made: it waits.  While a commit is under way, what it takes along may be in no list (when its path was "
        "written anew meanwhile); a commit that lasts from the mark to the second look would hide it twice.  0 is no "
        "wait at all, and only right where nobody commits.",
    )
    max_marked_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="A mark of more than this share of the listed objects, or bytes, is not swept before a person has "
        "overridden the brake.",
    )
    share_counts_from_objects: int = Field(
        default=1000,
        ge=0,
        description="Marks of up to so many objects, and of up to share_counts_from_bytes, may be any share of a small "
        "repository.",
    )
    share_counts_from_bytes: int = Field(
        default=1024**3,
        ge=0,
        description="Marks of more bytes than this count for max_marked_share, however few their objects are.",
    )
    max_mark_age_days: float = Field(
        default=30.0, gt=0, description="An older mark is not swept before a person has overridden the brake."
    )
    head_sample_objects: int = Field(
        default=500,
        ge=0,
        description="How many objects that branches show are looked for in each mark, as a last check of all else.  "
        "With 0 each mark needs an override of no_head_object_marked.",
    )
    max_commits: int = Field(
        default=200_000,
        ge=0,
        description="Compute the active commits here too, and keep what either this or the server's list has, in "
        "repositories of up to so many commits: the server's own list leaves out commits that the rules retain, "
        "depending on the order of their ids.  Beyond that the server's list cannot be checked: each mark needs an "
        "override of server_list_is_complete, and protections of commits are refused.",
    )
    max_twin_lookups: int = Field(
        default=10_000,
        ge=0,
        description="How many paths of branches may be looked up to find objects that a branch shows and the server's "
        "uncommitted list leaves out.  Beyond that, objects that may be such are kept, and counted as shielded.",
    )
    max_uncommitted_pages: int = Field(
        default=100_000,
        gt=0,
        description="Give up when the server has not finished its uncommitted list after this many pages: a badly "
        "configured server hands out continuation tokens for ever.",
    )
    prepare_timeout_hours: float = Field(
        default=6.0,
        gt=0,
        description="How long the server may take to list the active commits before the run is given up.",
    )

    @property
    def two_clocks_apart(self) -> timedelta:
        """How far two clocks may be apart, each of which is off by ``max_clock_skew_seconds``."""
        return timedelta(seconds=2 * self.max_clock_skew_seconds)
