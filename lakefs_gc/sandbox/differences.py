"""The complete list of intended differences between the sandbox and a lakeFS server (1.84), with their reasons.

Everything else in a recording of a real server must be equal; ``lakefs_gc_tests/sandbox/test_contract.py`` checks that,
and this list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lakefs_gc.sandbox.context import SandboxOptions


@dataclass(frozen=True)
class ChosenDifference:
    """A difference that lakeFS's design for collecting uncommitted objects requires.

    ``option`` names the field of ``SandboxOptions``. With ``lakefs_value`` the sandbox behaves like lakeFS.
    """

    option: str
    lakefs_value: bool
    lakefs: str
    sandbox: str
    reason: str


@dataclass(frozen=True)
class MissingFeature:
    """A part of lakeFS that the sandbox does not implement.

    ``paths`` are the ends of the paths that it does not answer, ``query`` is a parameter that it rejects, and
    ``fields`` are the fields of answers that differ.
    """

    name: str
    reason: str
    paths: tuple[str, ...] = ()
    query: str = ""
    fields: frozenset[str] = frozenset()


CHOSEN = (
    ChosenDifference(
        option="single_use_links",
        lakefs_value=False,
        lakefs="a link token can be used repeatedly until it expires",
        sandbox="a link token is tracked and valid for one use; a second use is rejected with 400",
        reason="a second use would restore an address whose object may have been collected since the first use",
    ),
    ChosenDifference(
        option="stage_inside_namespace",
        lakefs_value=True,
        lakefs="StageObject accepts any address; an address in the namespace but outside data/ is linked without a "
        "token",
        sandbox="both accept only addresses outside the namespace, and reject others with 400",
        reason="an address inside may belong to an object that a collector has marked and will delete",
    ),
    ChosenDifference(
        option="shallow_copies",
        lakefs_value=False,
        lakefs="every copy is a new physical object",
        sandbox="a copy of a staged object within its branch shares the address, and is tracked for a limited time",
        reason="a rename copies no data; because of the record, a running preparation does not miss the address, so "
        "the id of a preparation must contain its start time",
    ),
)

MISSING = (
    MissingFeature(
        "presigned URLs of a local store",
        "a folder has none; a store in S3 has them",
        query="presign",
        fields=frozenset(
            {"presigned_url", "gc_commits_presigned_url", "pre_sign_support", "pre_sign_multipart_upload"}
        ),
    ),
    MissingFeature(
        "an update of user metadata in a repository that does not exist",
        "lakeFS answers 204 as if the update had succeeded; the sandbox answers 404",
    ),
    MissingFeature(
        "addresses of a local store by its folder",
        "lakeFS shows and issues local:///folder/repo/data/...; the sandbox accepts them, and shows "
        "local://repo/data/...",
    ),
    MissingFeature("dumps of refs", "collectors never request one", paths=("/refs/dump", "/refs/restore")),
    MissingFeature(
        "the same version and default namespace",
        "the sandbox reports its own version and store",
        fields=frozenset({"version", "default_namespace_prefix"}),
    ),
)


def like_lakefs(options: SandboxOptions | None = None) -> SandboxOptions:
    """Return the options without any chosen difference."""
    values: dict[str, Any] = {chosen.option: chosen.lakefs_value for chosen in CHOSEN}
    return replace(options or SandboxOptions(), **values)
