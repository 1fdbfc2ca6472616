"""Rules 3, 7 and 12 in inventory reports: what a report omits, and rows that are no current objects."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

_MANIFEST, _ROWS = (f"storage/listing/inventory_{name}.py" for name in ("manifest", "rows"))
_TEST = "storage/listing/test_inventory.py"

MUTANTS: tuple[Mutant, ...] = (
    never(
        12,
        "a report of another account of Azure is rejected",
        _MANIFEST,
        "not account or account != namespace.account",
        _TEST,
        "bad_manifests",
    ),
    never(
        12, "a report of another bucket is rejected", _MANIFEST, "bucket != namespace.bucket", _TEST, "bad_manifests"
    ),
    never(
        3,
        "a report whose run did not succeed is rejected",
        _MANIFEST,
        'content["status"] != "Succeeded"',
        _TEST,
        "bad_manifests",
    ),
    never(
        3,
        "a report whose number of shards differs is rejected",
        _MANIFEST,
        'int(content["shard_count"]) != len(names)',
        _TEST,
        "bad_manifests",
    ),
    never(
        12,
        "a rule of Azure covers the namespace",
        _MANIFEST,
        'not any(folder.startswith(prefix.lstrip("/")) for prefix in prefixes)',
        _TEST,
        "bad_manifests",
    ),
    never(
        12,
        "a rule of Azure excludes no part of the namespace",
        _MANIFEST,
        "folder.startswith(prefix) or prefix.startswith(folder)",
        _TEST,
        "bad_manifests",
    ),
    never(
        12,
        "a rule of Azure does not exclude old blobs",
        _MANIFEST,
        'filters.get("creationTime")',
        _TEST,
        "bad_manifests",
    ),
    never(
        12,
        "a rule of Azure does not exclude block blobs",
        _MANIFEST,
        '"blockBlob" not in filters.get("blobTypes", ["blockBlob"])',
        _TEST,
        "bad_manifests",
    ),
    never(
        3,
        "a manifest that differs from its checksum is rejected",
        _MANIFEST,
        "not _MD5.fullmatch(checksum) or md5_of(data) != checksum",
        _TEST,
        "changed_manifest",
    ),
    never(
        12,
        "a column that tells current objects from other rows is there",
        _ROWS,
        "name not in names",
        _TEST,
        "something_else",
    ),
    Mutant(
        12,
        "a report of Google's has the field that tells noncurrent versions",
        _MANIFEST,
        '("timeDeleted",) if bucket',
        "() if bucket",
        _TEST,
        "something_else",
    ),
    Mutant(
        12,
        "a report that does not name its bucket names it in each row",
        _MANIFEST,
        '("timeDeleted", "bucket")',
        '("timeDeleted",)',
        _TEST,
        "names_no_bucket",
    ),
    Mutant(
        7,
        "a version in Azure that is not known to be current is not listed",
        _ROWS,
        'kind == "azure" and "VersionId" in table.schema.names',
        "False",
        _TEST,
        "azure_versions",
    ),
    Mutant(
        7,
        "deleted blobs, older versions and snapshots are not listed",
        _ROWS,
        "table = table.filter(_current(table, kind))",
        "pass",
        _TEST,
        "azure_deleted or each_kind",
    ),
    Mutant(
        12,
        "the path of a namespace in Azure is decoded",
        "storage/urls.py",
        'unquote(path, errors="strict").strip("/").partition("/")',
        'path.strip("/").partition("/")',
        _TEST,
        "percent_encoded or the_folder",
    ),
    Mutant(
        12,
        "the path of a namespace in Google's store is read as Go reads it",
        "storage/urls.py",
        "path = path_as_go_reads(path)",
        "path = unquote(path)",
        _TEST,
        "percent_encoded or the_folder",
    ),
    never(
        3,
        "a report has as many records as its manifest says",
        "engine/collect/listing/inventory_listing.py",
        "inventory.records is not None and records != inventory.records",
        "engine/collect/listing/test_store_listing.py",
        "inventory or vendor",
    ),
)
