"""Files that the version before checks and severities wrote are still read to the same values.

``recorded/`` has one file of each kind, written by a collection of the embedded server.
"""

from __future__ import annotations

import json
from pathlib import Path

from lakefs_gc.engine.records.approval import Approval
from lakefs_gc.engine.records.backup_manifest import Backup
from lakefs_gc.engine.records.check import Severity
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.workspace.workspace import DatasetManifest

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
    assert set(approval.overrides) == {"share_of_objects", "share_of_bytes", "live_objects_exist"}


def test_a_backup_names_its_mark_and_parts() -> None:
    backup = Backup.from_json(recorded("backup-version-3.json"), "backup")
    assert (backup.repository, backup.mark_id) == ("lake", "ft4tqrdlleg1bmn94d30")
    assert sum(part.objects for part in backup.parts) == 55


def test_the_manifest_of_a_listing_has_its_run() -> None:
    run = GCRun.of(DatasetManifest.from_json(recorded("store-listing-version-3.json"), "manifest"))
    assert (run.repository, run.namespace) == ("lake", "local://lake/")
