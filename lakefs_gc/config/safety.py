"""The timings and limits that keep live data safe, and the objects that users protect (rule 11)."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from lakefs_gc.config.section import Section


class Protections(Section):
    """Commits and paths that are kept beyond the server's retention rules. A protection never deletes more."""

    tags: tuple[str, ...] = Field(
        default=(),
        description='Shell patterns of tag names, e.g. ["release-*"]. The commit of each matching tag is kept, however '
        "old it is. Every kept commit also keeps its objects, which then occupy space.",
    )
    branches: tuple[str, ...] = Field(
        default=(),
        description='Shell patterns of branch names, e.g. ["main"]. Every commit in the history of each matching '
        "branch is kept. On a branch with a long history nothing that was ever committed is freed.",
    )
    days: float = Field(
        default=0,
        ge=0,
        description="Days; 0: off. Keeps every commit that is newer than this and can be reached from a branch or a "
        "tag. Also keeps every metarange that was written to the store within this time, so commits of deleted "
        "branches are kept too. One exception: a commit of a deleted branch whose content is identical to an earlier "
        "commit has the earlier commit's metarange, and is kept only if that metarange is new enough.",
    )
    last_commits: int = Field(
        default=0,
        ge=0,
        description="Number of commits to keep on each branch, counted from its head along first parents. 0: off.",
    )
    path_prefixes: tuple[str, ...] = Field(
        default=(),
        description='Prefixes of paths in the repository, e.g. ["audit/"]. Objects that any commit has below such a '
        "path are kept, however old the commit is. Use it for data with a legal retention period.",
    )

    def joined(self, other: Protections) -> Protections:
        """Return the protections that keep what either of the two keeps."""
        return Protections(
            tags=tuple(dict.fromkeys((*self.tags, *other.tags))),
            branches=tuple(dict.fromkeys((*self.branches, *other.branches))),
            days=max(self.days, other.days),
            last_commits=max(self.last_commits, other.last_commits),
            path_prefixes=tuple(dict.fromkeys((*self.path_prefixes, *other.path_prefixes))),
        )

    @property
    def of_commits(self) -> bool:
        """Return whether a commit may be protected."""
        return bool(self.tags or self.branches or self.days or self.last_commits)


class SafetyParameters(Section):
    """All timings and limits that keep live data safe (rule 11).

    A smaller number is less safe unless the description of the field says otherwise.
    """

    min_age_hours: float = Field(
        default=24.0,
        ge=0,
        description="Hours. An object newer than this when the run starts is never deleted. The server's grace period "
        "(24 hours by default) is the lower limit, because an upload link is valid for that long and a newer object "
        "may still wait to be linked. A larger value is safer and frees space later.",
    )
    allow_min_age_below_grace: bool = Field(
        default=False,
        description="Allow min_age_hours to be smaller than the server's grace period. Set it to true only while no "
        "client uploads: an object that is uploaded and not yet linked would be deleted.",
    )
    max_clock_skew_seconds: float = Field(
        default=300.0,
        gt=0,
        description="Seconds. A run, a stage or a sweep refuses to start if the clocks of this machine and of the "
        "store differ by more than this. S3 itself tolerates 15 minutes in signatures. A larger value is less "
        "safe, because the age of objects is then known less exactly.",
    )
    check_foreign_references: bool = Field(
        default=True,
        description="Read the metadata of every other repository that these credentials can see, and keep the objects "
        "that it references by full address (a zero-copy import does). Costs one read of each of their ranges. "
        "false: such references are unknown, and every mark needs an override of other_repositories_were_read.",
    )
    repositories_not_read: tuple[str, ...] = Field(
        default=(),
        description="Names of other repositories with a store that this machine can never reach. They are not read, "
        "and each mark warns that they may reference its objects. Name a repository here only if nothing was imported "
        "into it. A repository that cannot be read and is not named here blocks every sweep.",
    )
    protect: Protections = Field(
        default=Protections(),
        description="Commits and paths that are kept beyond the server's retention rules.",
    )
    longest_commit_minutes: float = Field(
        default=10.0,
        ge=0,
        description="Minutes that the longest commit or merge in this repository takes. A sweep waits until its mark "
        "is this old, plus twice max_clock_skew_seconds, before its second look. The reason: while a commit is in "
        "progress and its paths are written again, its objects may appear in no list. A commit that lasts from the "
        "mark to the second look would be overlooked. 0: no wait, which is safe only if no client commits.",
    )
    max_marked_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share between 0 and 1. A mark with more than this share of the listed objects, or of their bytes, "
        "fails a check and cannot be swept until a person overrides that check. A larger value is less safe: it lets "
        "a mark pass that wrongly contains most of the repository.",
    )
    share_counts_from_objects: int = Field(
        default=1000,
        ge=0,
        description="Objects. max_marked_share applies only to marks with more objects than this, or with more bytes "
        "than share_counts_from_bytes, so that a small repository can be cleaned completely. A larger value is less "
        "safe.",
    )
    share_counts_from_bytes: int = Field(
        default=1024**3,
        ge=0,
        description="Bytes. max_marked_share applies to every mark with more bytes than this, however few its objects "
        "are. A larger value is less safe.",
    )
    max_mark_age_days: float = Field(
        default=30.0,
        gt=0,
        description="Days. A mark older than this fails a check and cannot be swept until a person overrides that "
        "check. A larger value is less safe. If marks often expire, mark again instead.",
    )
    head_sample_objects: int = Field(
        default=500,
        ge=0,
        description="Number of objects at branch heads that are looked up in each mark, as a last check that nothing "
        "live is marked. A larger value is safer and makes more requests to the lakeFS server. 0: nothing is looked "
        "up, and every mark needs an override of no_head_object_marked.",
    )
    max_commits: int = Field(
        default=200_000,
        ge=0,
        description="Commits, each of which takes about 1 kB of the driver's memory. Up to this number lakefs-gc also "
        "computes the active commits itself, and keeps what either list contains: the server's own list can omit "
        "commits that the rules retain, depending on the order of their ids. Above it, the server's list cannot be "
        "checked, so every mark needs an override of server_list_is_complete, and protections of commits are refused.",
    )
    max_twin_lookups: int = Field(
        default=10_000,
        ge=0,
        description="Number of lookups of branch paths that may be made to find hidden twins: objects that a branch "
        "shows although the server's uncommitted list omits them. Paths that are near each other are read in pages of "
        "the branch's list: 50 objects of a page count as one lookup. Objects beyond this limit are kept unverified. A "
        "larger value frees more and makes more requests to the lakeFS server. With a smaller value, it relies "
        "more on the MD5s that the store states and on the sizes that clients state: see the known limits.",
    )
    max_uncommitted_pages: int = Field(
        default=100_000,
        gt=0,
        description="Pages. The run fails if the server's uncommitted list has more pages than this: a wrongly "
        "configured server returns continuation tokens for ever. Raise it only if a repository really has so much "
        "uncommitted data. A smaller value is not less safe.",
    )
    prepare_timeout_hours: float = Field(
        default=6.0,
        gt=0,
        description="Hours. The run fails if the server needs longer than this to list the active commits. Raise it "
        "for repositories with a very long history. A smaller value is not less safe.",
    )

    @property
    def two_clocks_apart(self) -> timedelta:
        """Return the greatest difference of two clocks that are each off by ``max_clock_skew_seconds``."""
        return timedelta(seconds=2 * self.max_clock_skew_seconds)
