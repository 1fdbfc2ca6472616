"""Rule 12 in ``prove-erased``: a proof is about the store of lakeFS, and all in it. So is a sweep of versions."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        12,
        "the store that a proof looks at is the one of lakeFS",
        "engine/explain/erasure.py",
        "unread += why_not_the_store_of_lakefs(sources)",
        "_ = why_not_the_store_of_lakefs(sources)",
        "engine/explain/copies/test_store_of_lakefs.py",
        "endpoint_of_a_replica",
    ),
    never(
        12,
        "where a mount leads to, the versions of the bucket itself are not shown",
        "engine/explain/copies/store_of_lakefs.py",
        "prefix and not is_local(namespace) and as_read(namespace) != as_read(url)",
        "engine/explain/copies/test_store_of_lakefs.py",
        "behind_a_mount",
    ),
    never(
        12,
        "a store without what lakeFS reads is another one",
        "engine/explain/copies/store_of_lakefs.py",
        "not is_same",
        "engine/explain/copies/test_store_of_lakefs.py",
        "old_record",
    ),
    Mutant(
        12,
        "a store of which it is unknown whether lakeFS reads it is not the one of lakeFS",
        "engine/explain/copies/store_of_lakefs.py",
        'return [f"{of_lakefs}: whether {url} is this store is unknown: {error.message}. {_NEEDS}"]',
        "return []",
        "engine/explain/copies/test_store_of_lakefs.py",
        "may_only_read",
    ),
    Mutant(
        12,
        "a backup among the copies of another one is looked for",
        "engine/explain/copies/backup_folders.py",
        "looked = _Looked(beside, tuple(folders), of_copies=copies)",
        "looked = _Looked(beside, tuple(each for each in folders if each != copies))",
        "engine/explain/copies/test_moved_backups.py",
        "among_the_copies",
    ),
    Mutant(
        12,
        "a backup of a namespace that no repository has may be of a former one of this repository",
        "engine/explain/copies/backup_folders.py",
        "return normalize_namespace(recorded) not in self.others",
        "return False",
        "engine/explain/copies/test_moved_backups.py",
        "former_namespace",
    ),
    Mutant(
        12,
        "the records of a mark in the layout of an earlier program of lakeFS's client are read",
        "engine/explain/mark_records.py",
        "if not _has_mark(store, mark_id):",
        "if not store.stat_many([paths.manifest, paths.summary]):",
        "engine/explain/test_mark_records.py",
        "in_each_layout",
    ),
    never(
        12,
        "an empty folder of a repository, where a disk may not be mounted, does not show that it has no backup",
        "engine/explain/copies/backup_folders.py",
        'is_local and folder == f"{owner.repository}/" and not folders and not files.num_rows',
        "engine/explain/copies/test_moved_backups.py",
        "empty_folder_of_the_repository",
    ),
    never(
        12,
        "a folder through which a bucket is reached does not show that its objects have no versions",
        "engine/sweep/preconditions.py",
        "hides_versions(store, mark.namespace)",
        "engine/sweep/test_sweep_versions.py",
        "folder_does_not_show",
    ),
)
