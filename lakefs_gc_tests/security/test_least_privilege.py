"""The policies of docs/reference/permissions.md permit exactly the requests of a run."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc_tests.support.recorded_run import RecordedRun, of_a_recorded_run
from lakefs_gc_tests.support.request_recorder import Needed, needs

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "permissions.md"

LAKEFS_ACTIONS: dict[str, list[tuple[str, str]]] = {
    r"GET /config": [("fs:ReadConfig", "*")],
    r"GET /config/garbage-collection": [],  # for every authenticated user
    r"GET /repositories": [("fs:ListRepositories", "*")],
    r"GET /repositories/(?P<repo>[^/]+)": [("fs:ReadRepository", "")],
    r"GET /repositories/(?P<repo>[^/]+)/branches": [("fs:ListBranches", "")],
    r"GET /repositories/(?P<repo>[^/]+)/tags": [("fs:ListTags", "")],
    r"GET /repositories/(?P<repo>[^/]+)/commits/[^/]+": [("fs:ReadCommit", "")],
    r"GET /repositories/(?P<repo>[^/]+)/refs/(?P<ref>[^/]+)/commits": [("fs:ReadBranch", "/branch/{ref}")],
    r"GET /repositories/(?P<repo>[^/]+)/refs/[^/]+/objects/ls": [("fs:ListObjects", "")],
    r"GET /repositories/(?P<repo>[^/]+)/branches/[^/]+/diff": [("fs:ListObjects", "")],
    r"GET /repositories/(?P<repo>[^/]+)/refs/[^/]+/objects(/stat)?": [("fs:ReadObject", "/object/path")],
    r"GET /repositories/(?P<repo>[^/]+)/metadata/object/range/.+": [("fs:ListObjects", ""), ("fs:ReadRepository", "")],
    r"GET /repositories/(?P<repo>[^/]+)/settings/gc_rules": [("retention:GetGarbageCollectionRules", "")],
    r"(GET|POST) /repositories/(?P<repo>[^/]+)/gc/prepare_commits(/async|/status)?": [
        ("retention:PrepareGarbageCollectionCommits", "")
    ],
    r"POST /repositories/(?P<repo>[^/]+)/gc/prepare_uncommited": [
        ("retention:PrepareGarbageCollectionUncommitted", "")
    ],
}
"""The required permission of each call: action, and resource below ``arn:lakefs:fs:::repository/<repo>`` (``*``: none).

Source: the beginning of each handler in lakeFS ``pkg/api/controller.go``.
"""

NOT_USED = {
    ("Backups", "s3:AbortMultipartUpload"): "only when a copy in parts fails, above 5 GiB or across stores",
    ("Restore", "s3:AbortMultipartUpload"): "the same",
    ("OtherRepositoryAtTheRoot", "s3:GetObject"): "the other repository of the run has a prefix",
}
"""Permitted actions that the run does not need, with the reason."""


@dataclass(frozen=True)
class Statement:
    """One statement of either kind of policy."""

    name: str
    actions: tuple[str, ...]
    resource: str

    def allows(self, action: str, resource: str) -> bool:
        return action in self.actions and fnmatch.fnmatchcase(resource, self.resource)


def policies() -> list[dict[str, Any]]:
    """Return the JSON blocks of the page: for lakeFS, for a namespace in S3, and for backups."""
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)]


def statements(policy: dict[str, Any], places: dict[str, str]) -> list[Statement]:
    """Return the statements of a policy, with the page's example names replaced by those of the test."""
    found = []
    for number, statement in enumerate(policy.get("Statement") or policy["statement"]):
        fields = {name.lower(): value for name, value in statement.items()}
        assert fields["effect"].lower() == "allow"
        assert "condition" not in fields
        resource = fields["resource"]
        for example, place in places.items():
            resource = resource.replace(example, place)
        found.append(Statement(fields.get("sid", str(number)), tuple(fields["action"]), resource))
    return found


@pytest.fixture(scope="module")
def places(recorded_run: RecordedRun) -> dict[str, str]:
    backups = recorded_run.backups.url.removeprefix("s3://").partition("/")[0]
    namespace = recorded_run.namespace.url.removeprefix("s3://").rstrip("/")
    bucket = namespace.partition("/")[0]
    return {
        ":::my-bucket/my-prefix/": f":::{namespace}/",
        ":::my-bucket": f":::{bucket}",
        ":::other-bucket": f":::{bucket}",
        ":::my-backups": f":::{backups}",
        "repository/my-repo": "repository/lake",
    }


def asked_of_lakefs(recorded_run: RecordedRun) -> Iterator[tuple[str, str]]:
    """Return the action and the resource of each lakeFS call in the run."""
    for method, path in recorded_run.asked:
        call = f"{method} {path.removeprefix('/api/v1')}"
        found = [(re.fullmatch(pattern, call), needed) for pattern, needed in LAKEFS_ACTIONS.items()]
        matches = [(match, needed) for match, needed in found if match]
        assert matches, f"a call without a known permission: {call}"
        for match, needed in matches:
            for action, below in needed:
                named = match.groupdict()
                yield (
                    action,
                    "*" if below == "*" else f"arn:lakefs:fs:::repository/{named['repo']}" + below.format(**named),
                )


def refused(needed: Iterable[tuple[str, str]], allowed: list[Statement]) -> set[tuple[str, str]]:
    return {(action, arn) for action, arn in needed if not any(s.allows(action, arn) for s in allowed)}


def unused(needed: Iterable[tuple[str, str]], allowed: list[Statement]) -> set[tuple[str, str]]:
    """Return each pair of statement and action that no request needed."""
    asked = list(needed)
    return {
        (statement.name, action)
        for statement in allowed
        for action in statement.actions
        if not any(action == other and statement.allows(other, arn) for other, arn in asked)
    }


@of_a_recorded_run
def test_the_lakefs_policy_permits_exactly_the_calls_of_a_run(
    recorded_run: RecordedRun, places: dict[str, str]
) -> None:
    policy, _, _ = policies()
    needed, allowed = set(asked_of_lakefs(recorded_run)), statements(policy, places)
    assert len(needed) > 10
    assert refused(needed, allowed) == set()
    assert unused(needed, allowed) == set()


@of_a_recorded_run
def test_the_s3_policies_permit_exactly_the_requests_of_a_run(
    recorded_run: RecordedRun, places: dict[str, str]
) -> None:
    _, policy, undo = policies()
    needed = {(item.action, item.resource) for item in recorded_run.needed}
    allowed = statements(policy, places) + statements(undo, places)
    assert refused(needed, allowed) == set()
    assert unused(needed, allowed) == set(NOT_USED)


@of_a_recorded_run
def test_without_backup_and_restore_the_first_policy_is_enough(
    recorded_run: RecordedRun, places: dict[str, str]
) -> None:
    """It does not permit access to the backup location, or the writes of a restore."""
    _, policy, _ = policies()
    needed = {(item.action, item.resource) for item in recorded_run.needed}
    data = f"arn:aws:s3:::{recorded_run.namespace.folder_url.removeprefix('s3://')}data/"
    rest = refused(needed, statements(policy, places))
    assert rest
    backups = places[":::my-backups"]
    assert {
        (action, arn)
        for action, arn in rest
        if not arn.startswith(f"arn:aws:s3{backups}") and not (action == "s3:PutObject" and arn.startswith(data))
    } == set()


@of_a_recorded_run
def test_listings_stay_in_their_folders(recorded_run: RecordedRun) -> None:
    """The policy cannot express this (see the page)."""
    places = (recorded_run.namespace, recorded_run.other_namespace, recorded_run.backups)
    folders = {place.folder_url.removeprefix("s3://") for place in places}
    for item in recorded_run.needed:
        if item.action == "s3:ListBucket":
            asked = f"{item.resource.removeprefix('arn:aws:s3:::')}/{item.prefix}"
            assert any(asked.startswith(folder) for folder in folders), asked


@pytest.mark.parametrize(
    ("method", "path", "headers", "action"),
    [
        ("GET", "/b?list-type=2&prefix=p", {}, "s3:ListBucket"),
        ("GET", "/b?versions&prefix=p", {}, "s3:ListBucketVersions"),
        ("HEAD", "/b/k", {}, "s3:GetObject"),
        ("DELETE", "/b/k?versionId=1", {}, "s3:DeleteObjectVersion"),
        ("PUT", "/b/k?partNumber=1&uploadId=2", {}, "s3:PutObject"),
        ("DELETE", "/b/k?uploadId=2", {}, "s3:AbortMultipartUpload"),
        ("GET", "/b/k?attributes", {}, "s3:GetObjectAttributes"),
    ],
)
def test_the_permission_of_each_request_is_recorded(
    method: str, path: str, headers: dict[str, str], action: str
) -> None:
    assert [needed.action for needed in needs(method, path, headers, b"")] == [action]


def test_a_copy_reads_and_writes_and_a_bulk_delete_deletes_each_key() -> None:
    assert needs("PUT", "/b/k", {"x-amz-copy-source": "/c/l%20m"}, b"") == [
        Needed("s3:GetObject", "arn:aws:s3:::c/l m"),
        Needed("s3:PutObject", "arn:aws:s3:::b/k"),
    ]
    body = b"<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>"
    assert [needed.resource[-3:] for needed in needs("POST", "/b?delete", {}, body)] == ["b/a", "b/b"]


def test_a_policy_that_allows_too_much_or_too_little_is_noticed() -> None:
    allowed = [Statement("one", ("s3:GetObject", "s3:PutObject"), "arn:aws:s3:::b/p/*")]
    assert refused([("s3:GetObject", "arn:aws:s3:::b/p2/x")], allowed)
    assert refused([("s3:DeleteObject", "arn:aws:s3:::b/p/x")], allowed)
    assert unused([("s3:GetObject", "arn:aws:s3:::b/p/x")], allowed) == {("one", "s3:PutObject")}
