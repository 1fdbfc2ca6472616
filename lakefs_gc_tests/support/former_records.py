"""Records in the form of earlier versions of lakefs-gc, made from records of this version."""

from __future__ import annotations

import hashlib
import json

from lakefs_gc.formats.durable_record import as_written, digest_of

_FORMER_NAMES = {
    "no_object_kept_unverified": "nothing_shielded",
    "live_objects_exist": "live_objects_are_there",
    "committed_data_found": "something_is_committed",
}


def former_mark(manifest: bytes, version: int) -> bytes:
    """Return the manifest of a mark as version 2 or 3 wrote it, with the digest that it had then."""
    content = json.loads(manifest)
    del content["schema_version"], content["digest"]
    content["format_version"] = version
    content["brakes"] = [
        {
            "name": _FORMER_NAMES.get(check["name"], check["name"]),
            **({"passed": check["answer"] == "safe"} if version == 2 else {"answer": check["answer"]}),
            "message": check["message"],
            "blocks": check["severity"] == "ERROR",
        }
        for check in content.pop("checks")
    ]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    content["digest"] = "sha256:" + hashlib.sha256(canonical).hexdigest()
    return json.dumps(content, indent=2, sort_keys=True).encode()


def former_backup(record: bytes) -> bytes:
    """Return the manifest of a backup, or the note of its begin, as version 2 wrote it: without ``keep_days``."""
    content = json.loads(record)
    del content["keep_days"]
    content["schema_version"] = 2
    if "digest" in content:
        content["digest"] = digest_of(content)
    return as_written(content, sort_keys="digest" in content)
