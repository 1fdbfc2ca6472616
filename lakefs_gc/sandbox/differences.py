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
    """A difference that lakeFS's design for collecting uncommitted objects asks for.

    ``option`` names the field of ``SandboxOptions`` that decides; ``lakefs_value`` makes the sandbox do as lakeFS.
    """

    option: str
    lakefs_value: bool
    lakefs: str
    sandbox: str
    reason: str


@dataclass(frozen=True)
class MissingFeature:
    """A part of lakeFS that the sandbox does not implement.

    ``paths`` are the ends of the paths that it does not answer, ``query`` a parameter that it refuses, and ``fields``
    what an answer has or lacks for it.
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
        lakefs="a link token may be used again and again until it expires",
        sandbox="it is tracked, and holds for one use; after that it is refused with 400",
        reason="a second use would bring back an address whose object may have been collected since the first",
    ),
    ChosenDifference(
        option="stage_inside_namespace",
        lakefs_value=True,
        lakefs="StageObject takes any address; an address in the namespace but outside data/ is linked without a token",
        sandbox="both take addresses outside the namespace only, and refuse others with 400",
        reason="an address inside may belong to an object that a collector has marked, which it would delete",
    ),
    ChosenDifference(
        option="shallow_copies",
        lakefs_value=False,
        lakefs="every copy is a new physical object",
        sandbox="a copy of a staged object within its branch shares the address, and is tracked for a limited time",
        reason="a rename costs no data; the record keeps a preparation under way from missing the address, so the id "
        "of a preparation must tell when it began",
    ),
)

MISSING = (
    MissingFeature(
        "presigned URLs of a local store",
        "a folder has none; with a store in S3 they are there",
        query="presign",
        fields=frozenset(
            {"presigned_url", "gc_commits_presigned_url", "pre_sign_support", "pre_sign_multipart_upload"}
        ),
    ),
    MissingFeature(
        "an update of user metadata in a repository that does not exist",
        "lakeFS answers 204 as if it had been made; the sandbox 404",
    ),
    MissingFeature(
        "addresses of a local store by its folder",
        "lakeFS shows and hands out local:///folder/repo/data/...; the sandbox takes them, and says "
        "local://repo/data/...",
    ),
    MissingFeature("dumps of refs", "collectors never ask for one", paths=("/refs/dump", "/refs/restore")),
    MissingFeature(
        "the same version and default namespace",
        "it says what it is and where it keeps objects",
        fields=frozenset({"version", "default_namespace_prefix"}),
    ),
)


def like_lakefs(options: SandboxOptions | None = None) -> SandboxOptions:
    """The options with every chosen difference taken out."""
    values: dict[str, Any] = {chosen.option: chosen.lakefs_value for chosen in CHOSEN}
    return replace(options or SandboxOptions(), **values)
