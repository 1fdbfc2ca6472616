"""What a failed check means, and what to do about it, in a few words for the page of a mark."""

from __future__ import annotations

from collections.abc import Mapping

from lakefs_gc.engine.records import check

MEANINGS: Mapping[str, str] = {
    check.SHARE_OF_OBJECTS: "Most of the repository would be deleted. Find out which branch, rule or upload caused it.",
    check.SHARE_OF_BYTES: "Most of the bytes would be deleted. Find out which branch, rule or upload caused it.",
    check.COMMITTED_DATA_FOUND: "The repository has commits, but no committed object was read. Live data may be "
    "marked. Do not override this before you know why.",
    check.RULES_NOT_LOOSER: "Less is retained than at the previous mark. Check that somebody changed the retention "
    "rules or safety.protect on purpose.",
    check.NOTHING_NEWER_THAN_CUTOFF: "An object that is too new is marked. Mark again, and report this as a bug.",
    check.NO_HEAD_OBJECT_MARKED: "A branch shows an object of this mark, or the sample could not be read. Mark again "
    "when lakeFS answers. Do not override this before you know why.",
    check.LIVE_OBJECTS_EXIST: "Objects that commits reference do not exist: data was lost before this run. The asset "
    "`missing` lists them. The sweep does not make it worse, but the cause may still be active.",
    check.OTHER_REPOSITORIES_WERE_READ: "Another repository may have imported objects of this one, and the import "
    "would break. Restore the access to that repository.",
    check.NO_OBJECT_KEPT_UNVERIFIED: "More was kept than necessary. Raise safety.max_twin_lookups to free it.",
    check.SERVER_LIST_IS_COMPLETE: "The lakeFS server omits commits that its rules retain. They were kept.",
    check.ONLY_NAMES_OF_LAKEFS: "The bucket is also used by something else than lakeFS, or a client chose names of its "
    "own. Look at the marked objects, and find out who writes to data/ and to the root of this bucket.",
    check.MARK_IS_RECENT: "The mark is old, and much may have changed. Mark again.",
}
