"""Files that the version before checks and severities wrote are still read to the same values.

``recorded/`` has one file of each kind, written by a collection of the embedded server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.engine.records.approval import Approval
from lakefs_gc.engine.records.backups.manifest import Backup
from lakefs_gc.engine.records.check import Severity
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.errors import BackupError, CorruptFileError, InputOrderError, MarkError
from lakefs_gc.formats.durable_record import DurableRecord, SealedRecord, digest_of

_RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> bytes:
    return (_RECORDED / name).read_bytes()


def test_a_mark_keeps_the_digest_that_was_approved() -> None:
    mark = Mark.from_json(recorded("mark-version-3.json"), "mark")
    known = json.loads(recorded("mark-digest-version-3.json"))
    assert (mark.mark_id, mark.digest) == (known["mark_id"], known["digest"])
    assert mark.candidates == 55
    assert mark.is_current


def test_the_brakes_of_a_mark_are_its_checks() -> None:
    content = json.loads(recorded("mark-version-3.json"))
    checks = Mark.from_json(recorded("mark-version-3.json"), "mark").checks
    assert len(checks) == len(content["brakes"])
    assert {check.name for check in checks} > {
        "live_objects_exist",
        "no_object_kept_unverified",
        "committed_data_found",
    }
    blocking = [check.severity is Severity.ERROR for check in checks]
    assert blocking == [brake["blocks"] for brake in content["brakes"]]
    assert [check.answer.value for check in checks] == [brake["answer"] for brake in content["brakes"]]


def test_an_approval_overrides_under_the_new_names() -> None:
    approval = Approval.from_json(recorded("approval-version-3.json"), "approval")
    assert (approval.approved_by, approval.approved_via) == ("ada", "command line")
    assert approval.only is Scope.all, "an approval of a version without parts is of the whole mark"
    assert set(approval.overrides) == {"share_of_objects", "share_of_bytes", "live_objects_exist"}


def test_a_backup_names_its_mark_and_parts() -> None:
    backup = Backup.from_json(recorded("backup-version-3.json"), "backup")
    assert (backup.repository, backup.mark_id) == ("lake", "ft4tqrdlleg1bmn94d30")
    assert sum(part.objects for part in backup.parts) == 55


def test_the_manifest_of_a_listing_has_its_run() -> None:
    run = GCRun.of(DatasetManifest.from_json(recorded("store-listing-version-1.json"), "manifest"))
    assert (run.repository, run.namespace) == ("lake", "local://lake/")


RECORDS: dict[str, type[DurableRecord]] = {
    "approval-version-3.json": Approval,
    "backup-version-3.json": Backup,
    "backup-version-4.json": Backup,
    "backup-version-5.json": Backup,
    "mark-version-3.json": Mark,
    "store-listing-version-1.json": DatasetManifest,
    "store-listing-version-2.json": DatasetManifest,
}
FieldPath = tuple[str | int, ...]
FREE = {
    "counts",
    "reasons",
    "rules",
    "versions",
    "inputs",
    "outcomes",
    "proofs",
    "facts",
    "files",
    "overrides",
    "server",
}
"""Fields that map any names to values."""
FACTS_OF_SWEEPS = {
    "longest_commit_minutes",
    "named_at_root",
    "needs_backup",
    "not_asked",
    "run_key",
    "server",
    "sweep_delay_hours",
    "sweep_policy",
    "unreadable",
}
"""What a sweep reads in the field ``run`` of a mark; the rest of it is for people."""
MAY_BE_NULL = {("candidate_bytes",), ("keep_days",), ("rules",), ("run", "named_at_root"), ("server",)}


def required_fields(content: Any, *path: str | int) -> Iterator[FieldPath]:
    for name, value in content.items() if isinstance(content, dict) else enumerate(content):
        if path == ("run",) and name not in FACTS_OF_SWEEPS:
            continue
        if isinstance(content, dict):
            yield (*path, name)
        if isinstance(value, dict | list) and name not in FREE:
            yield from required_fields(value, *path, name)


FIELDS = [(name, path) for name in RECORDS for path in required_fields(json.loads(recorded(name)))]


def at(content: Any, path: FieldPath) -> Any:
    for step in path:
        content = content[step]
    return content


def read_changed(name: str, content: dict[str, Any], *, seal: bool = True) -> None:
    if seal and "digest" in content:
        content["digest"] = digest_of(content)
    RECORDS[name].from_json(json.dumps(content, indent=2, sort_keys=not name.startswith("approval")).encode(), "file")


def label(value: object) -> str:
    return ".".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize(("name", "path"), FIELDS, ids=label)
def test_no_field_may_be_missing(name: str, path: FieldPath) -> None:
    """Rule 12: a field that was removed never passes for "none", though the file is sealed again."""
    content = json.loads(recorded(name))
    del at(content, path[:-1])[path[-1]]
    is_seal = path == ("digest",) and issubclass(RECORDS[name], SealedRecord)
    with pytest.raises((MarkError, BackupError, CorruptFileError) if is_seal else (CorruptFileError, InputOrderError)):
        read_changed(name, content, seal=not is_seal)


@pytest.mark.parametrize(("name", "path"), FIELDS, ids=label)
def test_no_field_may_be_of_another_type(name: str, path: FieldPath) -> None:
    before = at(json.loads(recorded(name)), path)
    values: list[Any] = [None, True, "x", 7.5, ["x"], {"x": []}]
    for value in values:
        if type(value) is type(before) or (value is None and path in MAY_BE_NULL) or path == ("digest",):
            continue
        content = json.loads(recorded(name))
        at(content, path[:-1])[path[-1]] = value
        with pytest.raises((CorruptFileError, InputOrderError)):
            read_changed(name, content)


def test_files_of_today_are_written_to_the_same_bytes() -> None:
    """The recorded mark and approval have former names of checks; these two are of the current schema version."""
    for name in ("backup-version-5.json", "store-listing-version-2.json"):
        assert RECORDS[name].from_json(recorded(name), "file").to_json() == recorded(name)


@pytest.mark.parametrize(
    ("path", "value"), [(("brakes", 0, "more"), 1), (("checks",), []), (("made_by",), "lakeFS Spark client")], ids=label
)
def test_what_no_version_of_lakefs_gc_wrote(path: FieldPath, value: Any) -> None:
    """A manifest of lakeFS's own client does not exist: it would be a mark without checks."""
    content = json.loads(recorded("mark-version-3.json"))
    at(content, path[:-1])[path[-1]] = value
    with pytest.raises(CorruptFileError, match="not a mark manifest"):
        read_changed("mark-version-3.json", content)


@pytest.mark.parametrize("name", ["cutoff", "folder_mounts", "server", "server_folders", "started_at", "store"])
def test_a_run_without_one_of_its_facts_is_refused(name: str) -> None:
    listing = DatasetManifest.from_json(recorded("store-listing-version-1.json"), "manifest")
    facts = listing.facts["run"]
    for run in ({key: fact for key, fact in facts.items() if key != name}, facts | {"cutoff": "x"}):
        with pytest.raises(InputOrderError, match="another version of lakefs-gc"):
            GCRun.of(replace(listing, facts={"run": run}))
