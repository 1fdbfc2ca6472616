"""JSON, TOML and YAML: marks, backups, approvals, manifests, settings."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from lakefs_gc.config import Settings, load_server_credentials, load_settings
from lakefs_gc.errors import (
    BackupError,
    ConfigurationError,
    CorruptFileError,
    InputOrderError,
    MarkError,
)
from lakefs_gc.formats import (
    report,
)
from lakefs_gc.formats.durable_record import as_written, digest_of
from lakefs_gc_tests.fuzz.targets.target import FILE, MOMENT, SCRATCH, Finding, Target, agree


def _summary_seeds() -> list[bytes]:
    summary = report.Summary("ft6v5fpksdue9brs3v50", True, "", MOMENT, MOMENT.replace(microsecond=0), 3)
    return [summary.to_json(), replace(summary, success=False, first_slice="é").to_json()]


def _read_summary(data: bytes) -> Any:
    summary = report.Summary.from_json(data, FILE)
    agree(report.Summary.from_json(summary.to_json(), FILE), summary, "a summary, written and read again")
    return summary


def _mark() -> Any:
    from lakefs_gc.engine.records.check import Answer, Check
    from lakefs_gc.engine.records.mark import Mark, MarkPart

    mark = Mark(
        mark_id="ft6v5fpksdue9brs3v50",
        repository="lake",
        namespace="s3://bucket/ns/",
        folder="_lakefs/retention/gc/unified/ft6v5fpksdue9brs3v50/",
        made_by="lakefs-gc",
        created_at=MOMENT,
        cutoff=MOMENT,
        digest="",
        parts=(MarkPart("k", 2, 30, "0" * 64),),
        candidates=2,
        candidate_bytes=30,
        counts={"store_listing": 5},
        reasons={"expired": {"objects": 2, "size_bytes": 30}},
        checks=(Check("share_of_objects", Answer.SAFE, "fine"),),
        rules={"default_retention_days": 7},
        run={
            "run_key": "lake/one",
            "server": {"endpoint_url": "http://lakefs", "repository_created_at": "2026-01-01"},
            "unreadable": [],
            "not_asked": [],
            "named_at_root": "",
            "sweep_policy": "manual",
            "sweep_delay_hours": 0.0,
            "needs_backup": False,
            "longest_commit_minutes": 0.0,
        },
        inputs={"candidates": "x"},
        versions={"lakefs-gc": "0"},
    )
    return mark.sealed()


def _mark_seeds() -> list[bytes]:
    from lakefs_gc_tests.support.former_records import former_mark

    manifest = _mark().to_json()
    # Marks of version 2 are never swept, so they may lack the facts that a sweep needs.
    without_facts = replace(_mark(), run={"run_key": "lake/one"}).sealed().to_json()
    return [manifest, former_mark(manifest, 3), former_mark(manifest, 2), former_mark(without_facts, 2)]


def _read_mark(data: bytes) -> Any:
    from lakefs_gc.engine.records.mark import Mark

    return Mark.from_json(data, FILE)


def _backup_seeds() -> list[bytes]:
    from lakefs_gc.engine.records.backups.manifest import Backup

    backup = Backup(
        mark_id="ft6v5fpksdue9brs3v50",
        repository="lake",
        namespace="s3://bucket/ns/",
        mark_digest="sha256:0",
        created_at=MOMENT,
        parts=_mark().parts,
        outcomes={"copied": 2, "already_gone": 0, "failed": 0},
        copied_bytes=30,
        proofs={"md5 by stores": 2},
        version="0",
    )
    written = backup.sealed().to_json()
    newer = ("schema_version", "server", "keep_days")
    of_version_1 = {k: v for k, v in json.loads(written).items() if k not in newer}
    of_version_1["format_version"] = 1
    of_version_1["digest"] = digest_of(of_version_1)
    return [written, as_written(of_version_1, sort_keys=True)]


def _read_backup(data: bytes) -> Any:
    from lakefs_gc.engine.records.backups.manifest import Backup

    return Backup.from_json(data, FILE)


def _approval() -> Any:
    from lakefs_gc.engine.records.approval import Approval

    return Approval("ft6v5", "lake", "sha256:0", "somebody", "cli", MOMENT, {"mark_is_recent": "because"})


def _read_approval(data: bytes) -> Any:
    from lakefs_gc.engine.records.approval import Approval

    approval = Approval.from_json(data, FILE)
    agree(Approval.from_json(approval.to_json(), FILE), approval, "an approval, written and read again")
    if not all(isinstance(why, str) and why.strip() for why in approval.overrides.values()):
        raise Finding("a check that is overridden without a reason")
    return approval


def _manifest_seeds() -> list[bytes]:
    from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest

    files = {"part-0.parquet": 700, "store_url=x/part-1.parquet": 0}
    made = DatasetManifest("mark", "lake/one", "id", MOMENT, MOMENT, 3, {"run": {"a": 1}}, {"x": "y"}, files).sealed()
    return [made.to_json()]


def _read_manifest(data: bytes) -> Any:
    from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest

    manifest = DatasetManifest.from_json(data, FILE)
    if manifest.schema_version == DatasetManifest.current_version:
        agree(DatasetManifest.from_json(manifest.to_json(), FILE), manifest, "a manifest, written and read again")
    if not all(type(size) is int for size in manifest.files.values()):
        raise Finding("a file with an invalid size")
    return manifest


_SETTINGS = b"""
repositories = ["lake"]
work_url = "file:///work"
[mounts]
"local://" = "file:///var/lakefs/"
[safety]
min_age_hours = 6.5
[safety.protect]
tags = ["release-*"]
[sweep]
policy = "after"
[backup]
url = "s3://backups/x"
[spark]
"spark.master" = "local[2]"
"""


def _read_settings(data: bytes) -> Any:
    file = Path(SCRATCH.name) / "lakefs-gc.toml"
    file.write_bytes(data)
    settings = load_settings(file)
    agree(Settings.model_validate(settings.model_dump()), settings, "settings, validated twice")
    return settings


_LAKECTL = b"""
credentials:
  access_key_id: AKIAexample
  secret_access_key: "the secret"
server:
  endpoint_url: http://localhost:8000/api/v1
"""


def _read_lakectl(data: bytes) -> Any:
    (Path(SCRATCH.name) / ".lakectl.yaml").write_bytes(data)
    try:
        credentials = load_server_credentials({}, Path(SCRATCH.name))
    except ConfigurationError as error:
        if "the secret" in str(error):
            raise Finding("an error shows the secret") from None
        raise
    if not re.match("https?://.", credentials.endpoint_url):
        raise Finding(f"no URL: {credentials.endpoint_url!r}")
    return credentials.access_key_id


_SEALED_JSON = (CorruptFileError, MarkError, BackupError)

TARGETS = (
    Target("summary", _read_summary, _summary_seeds),
    Target("mark", _read_mark, _mark_seeds, _SEALED_JSON, sealed=True),
    Target("backup", _read_backup, _backup_seeds, _SEALED_JSON, sealed=True),
    Target("approval", _read_approval, lambda: [_approval().to_json()]),
    Target("manifest", _read_manifest, _manifest_seeds, (CorruptFileError, InputOrderError)),
    Target("settings", _read_settings, lambda: [_SETTINGS, b""], (ConfigurationError,)),
    Target("lakectl", _read_lakectl, lambda: [_LAKECTL], (ConfigurationError,)),
)
