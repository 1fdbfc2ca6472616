"""The parsers of external files: their inputs, their permitted errors, and the properties of accepted files.

A target's ``read`` gets any bytes. It may raise the target's ``refusals``. Any other error, a crash or a hang is a
finding. So is a ``Finding`` that it raises because two ways to read the same bytes differ. The content of a file that a
*sealed* target accepts must equal the content of one of its seeds. Such files have checksums or a digest over all used
parts, so a changed file is rejected, or the change is in an unused part.

numba's compiled code cannot be instrumented. So targets of the decoder exist twice. In the compiled form, only the
Python code around it guides the fuzzer. In the *interpreted* form, the same functions run as Python, every memory
access is checked, and coverage guides the fuzzer through them (see ``interpreted``). Nothing is compiled in such a
process.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.config import Settings, load_server_credentials, load_settings
from lakefs_gc.errors import (
    BackupError,
    ConfigurationError,
    CorruptFileError,
    CorruptRangeError,
    InputOrderError,
    MarkError,
    NamespaceError,
)
from lakefs_gc.formats import (
    addresses,
    commits_csv,
    entry,
    gc_rules,
    range_data,
    ranges,
    report,
)
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.formats.sstable import reader as sstable
from lakefs_gc.formats.sstable import snappy
from lakefs_gc.formats.uncommitted_parquet import UNCOMMITTED_FILE_SCHEMA, read_uncommitted, write_uncommitted
from lakefs_gc.storage.listing.inventory import newest_inventory
from lakefs_gc.storage.listing.inventory_manifest import FileFormat, Inventory, InventoryFile
from lakefs_gc.storage.listing.inventory_rows import read_inventory_file
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.s3.errors import IncompleteListingError
from lakefs_gc.storage.s3.listing import parse_page, read_carefully, read_quickly
from lakefs_gc_tests.fuzz import interpreted, tables
from lakefs_gc_tests.golden import golden_files

CORPUS = Path(__file__).parent / "corpus"
REFUSED = "refused"
_FILE = "fuzzed"
_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
_SCRATCH = tempfile.TemporaryDirectory(prefix="lakefs-gc-fuzz-")


class Finding(AssertionError):  # noqa: N818 - it is what it is
    """A parser accepted an invalid file, or two ways to read the same bytes differ."""


@dataclass(frozen=True)
class Target:
    """One parser. ``seeds`` are good files. ``read`` returns the content of a file, to be compared with ``==``."""

    name: str
    read: Callable[[bytes], Any]
    seeds: Callable[[], list[bytes]]
    refusals: tuple[type[Exception], ...] = (CorruptFileError,)
    sealed: bool = False
    interpreted: bool = False

    def run(self, data: bytes) -> Any:
        """Return the content of the file, or ``REFUSED``. Any other error is a finding."""
        try:
            parsed = self.read(data)
        except self.refusals:
            return REFUSED
        if self.sealed and parsed not in _content_of_seeds(self):
            raise Finding(f"{self.name}: a file that differs from all seeds was accepted: {parsed!r:.300}")
        return parsed

    @property
    def corpus(self) -> list[Path]:
        return sorted((CORPUS / self.name).glob("*"))


@lru_cache(maxsize=64)
def _content_of_seeds(target: Target) -> list[Any]:
    return [target.read(seed) for seed in target.seeds()]


def _agree(left: Any, right: Any, what: str) -> None:
    if left != right:
        raise Finding(f"{what}: {left!r:.300} is not {right!r:.300}")


# -- tables ---------------------------------------------------------------------------------------------------


def _golden(kind: str, *names: str, largest: int = 6000) -> list[bytes]:
    files = golden_files("formats")
    found = [
        content
        for path, content in sorted(files.items())
        if path.endswith(".sst") and f"/{kind}-" in path and any(name in path for name in names)
    ]
    return [content for content in found if len(content) <= largest]


_TABLES = ("esti-unified/", "address-types", "metadata-and-unicode", "old-layout/", "one-entry", "zero-", "long-keys")


def _ranges() -> list[bytes]:
    return _golden("range", *_TABLES)


def _metaranges() -> list[bytes]:
    return _golden("metarange", *_TABLES, "many-blocks")


def _some_ranges() -> list[bytes]:
    return _golden("range", "address-types", "one-entry", "metadata-and-unicode", largest=3000)


def _dumps_of_refs() -> list[bytes]:
    return [content for kind in ("branch", "commit", "tag") for content in _golden(f"range-{kind}", "no-rules/")]


def _rows(batch: pa.RecordBatch) -> Any:
    batch.validate(full=True)
    return batch.to_pylist()


def _range_rows(data: bytes) -> list[tuple[Any, ...]]:
    batch = ranges.read_range(data, _FILE, keys=True, details=True)
    batch.validate(full=True)
    times = batch["last_modified"].cast(pa.int64())
    names = ("key", "address", "address_type", "size")
    columns = [*(batch[name] for name in names), times, batch["e_tag"], batch["content_type"]]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _read_range(data: bytes) -> Any:
    rows = _range_rows(data)
    # Without keys and details, other loops run.
    plain = ranges.read_range(data, _FILE)
    _agree(plain["address"].to_pylist(), [row[1] for row in rows], "addresses with and without details")
    return rows


def _forged_range(data: bytes) -> Any:
    """Read a range with corrected checksums, and compare it with the decoders of single messages."""
    forged = tables.with_right_checksums(data)
    rows = _range_rows(forged)
    try:
        by_hand = tables.rows_by_hand(forged)
    except CorruptFileError as error:
        raise Finding(f"the kernel accepts what plain Python refuses: {error}") from None
    _agree(rows, by_hand, "the kernel and plain Python")
    return None


def _forged_metarange(data: bytes) -> Any:
    return _rows(ranges.read_metarange(tables.with_right_checksums(data), _FILE))


def _interpreted_range(data: bytes) -> Any:
    interpreted.forget_buffers()
    return len(_range_rows(data))


def _interpreted_pairs(data: bytes) -> Any:
    interpreted.forget_buffers()
    return len(sstable.read_pairs(data, _FILE))


_LARGEST_CONTENT = 1 << 16


def _snappy(data: bytes) -> Any:
    """Decompress two bytes of size and a body, and compare the result with Snappy's own decoder."""
    if len(data) < 2:
        return REFUSED
    size, body = int.from_bytes(data[:2], "little"), data[2:]
    source = interpreted.NUMPY.frombuffer(body + b"\xaa" * snappy.SLACK_BYTES, np.uint8)
    guarded = np.full(size + snappy.SLACK_BYTES + 64, 0x55, np.uint8)
    target = interpreted.NUMPY.frombuffer(guarded.data, np.uint8, size + snappy.SLACK_BYTES)
    # As in compiled callers, because Python's own numbers would not wrap around.
    start: Any = np.int64(source.ctypes.data)
    accepted = bool(snappy.decompress(start, start + len(body), cast(Any, np.int64(target.ctypes.data)), size))
    if not (guarded[size + snappy.SLACK_BYTES :] == 0x55).all():
        raise Finding("written behind the target")
    header = b"" if size else b"\0"
    rest = size
    while rest:
        header += bytes([rest & 0x7F | (0x80 if rest > 0x7F else 0)])
        rest >>= 7
    try:
        theirs: bytes | None = pa.Codec("snappy").decompress(header + body, size, asbytes=True)
    except (pa.ArrowException, OSError):
        theirs = None
    ours = guarded[:size].tobytes() if accepted else None
    _agree(ours, theirs, "our decoder of Snappy and Google's")
    return ours


def _interpreted_snappy(data: bytes) -> Any:
    interpreted.forget_buffers()
    return _snappy(data)


def _snappy_seeds() -> list[bytes]:
    contents = [b"", b"a", b"abcdefgh" * 40, bytes(range(256)) * 3, b"data/slice/id,signature" * 7 + b"x" * 100]
    seeds = []
    for content in contents:
        compressed = bytes(pa.Codec("snappy").compress(content))
        behind_length = next(i for i, byte in enumerate(compressed) if byte < 0x80) + 1
        seeds.append(len(content).to_bytes(2, "little") + compressed[behind_length:])
    return seeds


# -- messages -------------------------------------------------------------------------------------------------


def _entries() -> list[entry.Entry]:
    return [
        entry.Entry("data/slice/id,signature", entry.AddressType.RELATIVE, 12, 1_700_000_000_123_456_789, "etag"),
        entry.Entry("s3://bucket/über", entry.AddressType.FULL, 1 << 40, -1, "", {"a": "b", "": "é"}, "text/plain"),
        entry.Entry("", entry.AddressType.BY_PREFIX, 0, 0),
    ]


def _read_entry(data: bytes) -> Any:
    decoded = entry.decode_entry(data, file=_FILE)
    _agree(entry.decode_entry(entry.encode_entry(decoded)), decoded, "an entry, written and read again")
    if not re.fullmatch(r"[0-9a-f]{64}", entry.entry_identity(decoded).hex()):
        raise Finding("an identity of another length")
    decoded.last_modified  # noqa: B018 - every time that is accepted must fit
    return decoded


def _read_value(data: bytes) -> Any:
    identity, content = entry.decode_value(data, file=_FILE)
    _agree(entry.decode_value(entry.encode_value(identity, content)), (identity, content), "a value, read again")
    described = range_data.decode_range_data(content, file=_FILE)
    again = range_data.decode_range_data(range_data.encode_range_data(described))
    _agree(again, described, "range data, written and read again")
    return described


def _value_seeds() -> list[bytes]:
    described = [range_data.RangeData(b"a", b"b", 100, 3), range_data.RangeData(b"", b"\xff", (1 << 64) - 1, -1)]
    return [entry.encode_value(b"i" * 64, range_data.encode_range_data(item)) for item in described]


def _read_rules(data: bytes) -> Any:
    rules = gc_rules.decode_rules(data)
    if rules is not None and (rules.default_retention_days or rules.branches):
        _agree(gc_rules.decode_rules(gc_rules.encode_rules(rules)), rules, "rules, written and read again")
        _agree(gc_rules.rules_from_api(gc_rules.rules_to_api(rules)), rules, "rules, by way of the API")
    return rules


def _rules_seeds() -> list[bytes]:
    rules = [gc_rules.GCRules(14, {"main": 21, "é": -1}), gc_rules.GCRules(0, {"": 0}), gc_rules.GCRules(7)]
    return [gc_rules.encode_rules(item) for item in rules]


def _read_api_rules(data: bytes) -> Any:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return REFUSED  # the error of the API client
    if not isinstance(body, dict):
        return REFUSED
    rules = gc_rules.rules_from_api(body)
    _agree(gc_rules.rules_from_api(gc_rules.rules_to_api(rules)), rules, "rules, shown and read again")
    return rules


def _api_rules_seeds() -> list[bytes]:
    rules = gc_rules.GCRules(14, {"main": 21, "feature/x": 0})
    return [json.dumps(gc_rules.rules_to_api(item)).encode() for item in (rules, gc_rules.GCRules(7))]


# -- lists and pages ------------------------------------------------------------------------------------------


def _read_csv(data: bytes) -> Any:
    batch = commits_csv.read_active_commits(data, _FILE)
    rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    _agree(commits_csv.write_active_commits(rows), data, "the commits, written again")
    return rows


def _csv_seeds() -> list[bytes]:
    ids = [f"{number:064x}" for number in range(4)]
    return [commits_csv.write_active_commits(rows) for rows in ([(ids[0], ids[1]), (ids[2], "")], [(ids[3], ids[3])])]


def _read_page(data: bytes) -> Any:
    """Read a page with the fast reader, and compare the result with the XML parser if the page is XML."""
    page = parse_page(data, "ns/")
    page.objects.validate(full=True)
    quick = read_quickly(data, "ns/")
    if quick is not None:
        try:
            careful = read_carefully(data, "ns/")
        except IncompleteListingError as error:
            if "not XML" in str(error):
                # The damage is in an unused part, such as the id of an owner. All used parts are complete.
                return None
            raise Finding(f"the quick way accepts a page that the XML parser refuses: {error}") from None
        for name in ("levels", "truncated", "token"):
            _agree(list(getattr(quick, name)), list(getattr(careful, name)), f"{name}, quick and by the XML parser")
        _agree(_listed(quick.objects), _listed(careful.objects), "objects, quick and by the XML parser")
    return [_listed(page.objects), page.sub_prefixes, page.next_token]


def _listed(batch: pa.RecordBatch) -> list[list[Any]]:
    """Return the columns, with times as numbers because Arrow's times exceed the year 9999."""
    return [column.to_pylist() for column in (batch["address"], batch["size"], batch["last_modified"].cast(pa.int64()))]


def _page(keys: list[str], levels: list[str], token: str, *, encoded: bool) -> bytes:
    def text(key: str) -> str:
        return quote_plus(key, safe="/") if encoded else key

    contents = "".join(
        f"<Contents><Key>ns/{text(key)}</Key><LastModified>2025-06-01T12:00:00.123Z</LastModified>"
        f"<ETag>&#34;e&#34;</ETag><Size>{number}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for number, key in enumerate(keys)
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>b</Name><Prefix>ns/</Prefix>{more}{'<EncodingType>url</EncodingType>' if encoded else ''}"
        f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated>{contents}"
        + "".join(f"<CommonPrefixes><Prefix>ns/{text(level)}</Prefix></CommonPrefixes>" for level in levels)
        + "</ListBucketResult>"
    ).encode()


def _page_seeds() -> list[bytes]:
    return [
        _page(["data/s/a b", "data/s/é%+", "marker/"], ["data/t/"], "token==", encoded=True),
        _page(["data/s/a&amp;b", "x"], [], "", encoded=False),
        _page([], [], "", encoded=False),
        _page(["one\ntwo"], [], "", encoded=True),
    ]


_JAVA_LIKE = re.compile(addresses.CANDIDATE_ADDRESS_REGEX)
_JAVA_LIKE_STRANGER = re.compile(addresses.UNRECOGNIZED_NAME_REGEX)


def _is_no_file(key: str, namespace: str) -> bool:
    """Return whether a key of a local store is a path with parts such as ``..``."""
    return addresses.is_local(namespace) and bool({"", ".", ".."} & set(key.split("/")))


def _read_address(data: bytes) -> Any:
    """Compare three ways to decide whether an address may be deleted, and two ways to make it relative."""
    try:
        address = data.decode()
    except UnicodeDecodeError:
        return REFUSED
    candidate = addresses.is_candidate_address(address)
    _agree(addresses.are_candidate_addresses(pa.array([address]))[0].as_py(), candidate, f"candidate {address!r}")
    stranger = addresses.has_unrecognized_name(address)
    _agree(addresses.have_unrecognized_names(pa.array([address]))[0].as_py(), stranger, f"stranger {address!r}")
    _agree(_JAVA_LIKE_STRANGER.search(address) is not None, stranger, f"stranger {address!r}")
    _agree(_JAVA_LIKE.match(address) is not None, candidate, f"the pattern of {address!r}")
    for kind in entry.AddressType:
        batch = pa.record_batch({"address": [address], "address_type": pa.array([kind], pa.int8())})
        for namespace in ("s3://bucket/ns", "local://repo/"):
            relative = addresses.relative_address(address, kind, namespace)
            below = addresses.entries_below(batch, addresses.spellings(namespace, namespace)).column("address")
            if relative is not None and not _is_no_file(relative, namespace):
                _agree(below[0].as_py(), relative, f"{kind!r} {address!r}")
            elif relative is None and not {"%", "?"} & set(address):
                _agree(below.to_pylist(), [], f"{kind!r} {address!r}")
            if relative is not None and relative != address:
                scheme, mark, rest = address.partition("://")
                if namespace.startswith("s3://"):  # a user name and an empty host are ignored
                    rest = re.sub(r"\A[^/?]*@", "", rest).lstrip("/")
                same = scheme.lower() + mark + rest  # the case of a scheme is ignored
                _agree(addresses.normalize_namespace(namespace) + relative, same, "inside the namespace")
    with suppress(NamespaceError):
        namespace = addresses.normalize_namespace(address)
        _agree(addresses.normalize_namespace(namespace), namespace, "a namespace, normalized twice")
    return candidate


def _address_seeds() -> list[bytes]:
    full = [
        "s3://bucket/ns/data/a",
        "s3://bucket/ns2/a",
        "local://repo/data/x",
        "LOCAL://repo/a",
        "s3://me@bucket/ns/a",
        "s3:///bucket/ns/a",
    ]
    below = ["data/s/id,sig", "root", "dummy", "_lakefs/x", "data/../x", "data/a\n", "data//x", "data/./x", "data/\0"]
    return [text.encode() for text in full + below]


# -- Parquet --------------------------------------------------------------------------------------------------


def _uncommitted_seeds() -> list[bytes]:
    rows = {"physical_address": ["data/s/a", "data/s/é", "data/s/a"], "creation_date": [1, 2, 3]}
    written = write_uncommitted(pa.record_batch(rows, schema=UNCOMMITTED_FILE_SCHEMA))
    recorded = [c for name, c in golden_files("esti-unified").items() if "/uncommitted/" in name and len(c) < 4000]
    return [written, *recorded[:2]]


def _read_uncommitted(data: bytes) -> Any:
    return _rows(read_uncommitted(data, _FILE))


def _deleted_seeds() -> list[bytes]:
    plain = report.deleted_parquet(pa.record_batch({"address": ["data/s/a", "data/t/é"]}))
    facts = {"address": ["data/s/a"], "size": pa.array([1], pa.int64()), "last_modified": [_MOMENT]}
    return [plain, parquet_bytes(pa.record_batch(facts), compression="snappy")]


def _read_part(data: bytes) -> Any:
    from lakefs_gc.engine.records.mark_parts import part_rows

    plain = report.read_deleted_addresses(data, _FILE).to_pylist()
    rows = part_rows(data, _FILE)
    rows.validate(full=True)
    _agree(rows["address"].to_pylist(), plain, "the addresses of a part")
    # As numbers, because Arrow's times exceed the year 9999.
    return [rows["size"].to_pylist(), rows["last_modified"].cast(pa.int64()).to_pylist()]


def _records(schema: pa.Schema, rows: list[dict[str, Any]]) -> list[bytes]:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink, compression="zstd")
    return [sink.getvalue()]


def _ledger_seeds() -> list[bytes]:
    from lakefs_gc.engine.records.ledger import RECORD

    return _records(RECORD, [{"address": "data/s/a", "size": 3, "outcome": "deleted", "error": ""}])


def _read_ledger(data: bytes) -> Any:
    from lakefs_gc.engine.records.ledger import read_records

    table = read_records(_FILE, data)
    table.validate(full=True)
    if table["address"].null_count or table["outcome"].null_count:
        raise Finding("a record without its address or its outcome")
    return table.to_pylist()


def _backup_record_seeds() -> list[bytes]:
    from lakefs_gc.engine.undo.backup import RECORD

    row = {"address": "data/s/a", "size": 3, "outcome": "copied", "proof": "md5 by stores", "checksum": "", "error": ""}
    return _records(RECORD, [row])


def _read_backup_record(data: bytes) -> Any:
    from lakefs_gc.engine.undo.backup import read_records

    table = read_records(_FILE, data)
    table.validate(full=True)
    if any(table[name].null_count for name in ("address", "outcome", "proof", "checksum", "error")):
        raise Finding("a record with something missing")
    return table.to_pylist()


# -- inventory reports ----------------------------------------------------------------------------------------


def _inventory_rows(file_format: FileFormat) -> Callable[[bytes], Any]:
    """Read data files with the manifest of S3 and correct checksums."""

    def read(data: bytes) -> Any:
        store = open_store(StoreLocation(f"file://{_SCRATCH.name}"))
        (Path(_SCRATCH.name) / "rows").write_bytes(data)
        file = InventoryFile("rows", len(data), hashlib.md5(data, usedforsecurity=False).hexdigest())
        columns = ("bucket", "key", "size", "last_modified_date") if file_format == "csv" else ()
        inventory = Inventory("s3", "m", _MOMENT, file_format, columns, (file,))
        batches = [batch for _, batch in read_inventory_file(store, inventory, file, "s3://bucket/ns")]
        for batch in batches:
            batch.validate(full=True)
        return [_listed(batch) for batch in batches]

    return read


def _inventory_table() -> pa.Table:
    keys = ["ns/data/s/a", "ns/data/s/b", "elsewhere", "ns/marker/"]
    sizes, times = pa.array([1, 2, 3, 4], pa.int64()), pa.array([_MOMENT] * 4, pa.timestamp("ms", "UTC"))
    return pa.table({"bucket": ["bucket"] * 4, "key": keys, "size": sizes, "last_modified_date": times})


def _inventory_csv() -> bytes:
    return b"".join(
        b'"bucket","%s","%d","2026-01-02T03:04:05.678Z"\n' % (key.encode(), size)
        for key, size in (("ns/data/s/a%2Cb", 1), ("ns/data/s/a+b", 2), ("else", 3))
    )


def _inventory_parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(_inventory_table(), sink)
    return sink.getvalue()


def _inventory_manifest(name: str, namespace: str) -> Callable[[bytes], Any]:
    """Read a manifest, with a correct checksum, of a namespace."""

    def read(data: bytes) -> Any:
        manifest = Path(_SCRATCH.name) / namespace.partition(":")[0] / "reports" / name
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_bytes(data)
        checksum = hashlib.md5(data, usedforsecurity=False).hexdigest()
        manifest.with_suffix(".checksum").write_text(checksum)
        store = open_store(StoreLocation(f"file://{str(manifest).removesuffix(f'/{name}')}"))
        inventory = newest_inventory(store, namespace)
        for file in inventory.files:
            if file.key.startswith("/") or ".." in file.key.split("/"):
                try:
                    store.read(file.key)
                except NamespaceError:
                    continue
                raise Finding(f"a file outside of the folder was read: {file.key!r}")
        return inventory

    return read


_INVENTORY_MANIFEST: dict[str, Any] = {
    "sourceBucket": "bucket",
    "destinationBucket": "arn:aws:s3:::reports",
    "version": "2016-11-30",
    "creationTimestamp": "1767323045000",
    "fileFormat": "CSV",
    "fileSchema": "Bucket, Key, Size, LastModifiedDate",
    "files": [{"key": "reports/data/x.csv.gz", "size": 10, "MD5checksum": "0" * 32}],
}
_AZURE_MANIFEST: dict[str, Any] = {
    "endpoint": "https://acct.blob.core.windows.net",
    "files": [{"blob": "2026/01/02/03-04-05/r/r.csv", "size": 10}],
    "inventoryStartTime": "2026-01-02T03:04:05Z",
    "ruleDefinition": {
        "filters": {"blobTypes": ["blockBlob"], "includeSnapshots": True, "prefixMatch": ["c"], "excludePrefix": ["x"]},
        "format": "csv",
        "objectType": "blob",
    },
    "status": "Succeeded",
    "summary": {"objectCount": 3},
}
_GCS_MANIFEST: dict[str, Any] = {
    "report_config": {
        "csv_options": {"delimiter": ",", "header_required": False},
        "objectMetadataReportOptions": {
            "metadataFields": ["bucket", "name", "size", "updated", "timeDeleted"],
            "storageFilters": {"bucket": "bucket"},
        },
    },
    "records_processed": "3",
    "snapshot_time": "2026-01-02T03:04:05Z",
    "shard_count": 1,
    "report_shards_file_names": ["r_2026-01-02T03:04_0.csv"],
}


# -- JSON, TOML and YAML --------------------------------------------------------------------------------------


def _summary_seeds() -> list[bytes]:
    summary = report.Summary("ft6v5fpksdue9brs3v50", True, "", _MOMENT, _MOMENT.replace(microsecond=0), 3)
    return [summary.to_json(), replace(summary, success=False, first_slice="é").to_json()]


def _read_summary(data: bytes) -> Any:
    summary = report.Summary.from_json(data, _FILE)
    _agree(report.Summary.from_json(summary.to_json(), _FILE), summary, "a summary, written and read again")
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
        created_at=_MOMENT,
        cutoff=_MOMENT,
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

    return Mark.from_json(data, _FILE)


def _backup_seeds() -> list[bytes]:
    from lakefs_gc.engine.records.backup_manifest import Backup

    backup = Backup(
        mark_id="ft6v5fpksdue9brs3v50",
        repository="lake",
        namespace="s3://bucket/ns/",
        mark_digest="sha256:0",
        created_at=_MOMENT,
        parts=_mark().parts,
        outcomes={"copied": 2, "already_gone": 0, "failed": 0},
        copied_bytes=30,
        proofs={"md5 by stores": 2},
        version="0",
    )
    return [backup.sealed().to_json()]


def _read_backup(data: bytes) -> Any:
    from lakefs_gc.engine.records.backup_manifest import Backup

    return Backup.from_json(data, _FILE)


def _approval() -> Any:
    from lakefs_gc.engine.records.approval import Approval

    return Approval("ft6v5", "lake", "sha256:0", "somebody", "cli", _MOMENT, {"mark_is_recent": "because"})


def _read_approval(data: bytes) -> Any:
    from lakefs_gc.engine.records.approval import Approval

    approval = Approval.from_json(data, _FILE)
    _agree(Approval.from_json(approval.to_json(), _FILE), approval, "an approval, written and read again")
    if not all(isinstance(why, str) and why.strip() for why in approval.overrides.values()):
        raise Finding("a check that is overridden without a reason")
    return approval


def _manifest_seeds() -> list[bytes]:
    from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest

    files = {"part-0.parquet": 700, "store_url=x/part-1.parquet": 0}
    made = DatasetManifest("mark", "lake/one", "id", _MOMENT, _MOMENT, 3, {"run": {"a": 1}}, {"x": "y"}, files)
    return [made.to_json()]


def _read_manifest(data: bytes) -> Any:
    from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest

    manifest = DatasetManifest.from_json(data, _FILE)
    _agree(DatasetManifest.from_json(manifest.to_json(), _FILE), manifest, "a manifest, written and read again")
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
    file = Path(_SCRATCH.name) / "lakefs-gc.toml"
    file.write_bytes(data)
    settings = load_settings(file)
    _agree(Settings.model_validate(settings.model_dump()), settings, "settings, validated twice")
    return settings


_LAKECTL = b"""
credentials:
  access_key_id: AKIAexample
  secret_access_key: "the secret"
server:
  endpoint_url: http://localhost:8000/api/v1
"""


def _read_lakectl(data: bytes) -> Any:
    (Path(_SCRATCH.name) / ".lakectl.yaml").write_bytes(data)
    try:
        credentials = load_server_credentials({}, Path(_SCRATCH.name))
    except ConfigurationError as error:
        if "the secret" in str(error):
            raise Finding("an error shows the secret") from None
        raise
    if not re.match("https?://.", credentials.endpoint_url):
        raise Finding(f"no URL: {credentials.endpoint_url!r}")
    return credentials.access_key_id


_SEALED_JSON = (CorruptFileError, MarkError, BackupError)

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("range", _read_range, _ranges, (CorruptRangeError,), sealed=True),
        Target("range_forged", _forged_range, _ranges, (CorruptRangeError,)),
        Target("range_interpreted", _interpreted_range, _some_ranges, (CorruptRangeError,), interpreted=True),
        Target("metarange", lambda data: _rows(ranges.read_metarange(data, _FILE)), _metaranges, sealed=True),
        Target("metarange_forged", _forged_metarange, _metaranges, (CorruptRangeError,)),
        Target("pairs", lambda data: _rows(sstable.read_pairs(data, _FILE)), _dumps_of_refs, sealed=True),
        Target("pairs_interpreted", _interpreted_pairs, _some_ranges, (CorruptRangeError,), interpreted=True),
        Target("snappy", _snappy, _snappy_seeds),
        Target("snappy_interpreted", _interpreted_snappy, _snappy_seeds, interpreted=True),
        Target("entry", _read_entry, lambda: [entry.encode_entry(item) for item in _entries()]),
        Target("value", _read_value, _value_seeds),
        Target("rules", _read_rules, _rules_seeds),
        Target("rules_of_api", _read_api_rules, _api_rules_seeds, (ConfigurationError,)),
        Target("commits_csv", _read_csv, _csv_seeds),
        Target("s3_page", _read_page, _page_seeds, (IncompleteListingError,)),
        Target("address", _read_address, _address_seeds),
        Target("uncommitted", _read_uncommitted, _uncommitted_seeds),
        Target("mark_part", _read_part, _deleted_seeds),
        Target("ledger", _read_ledger, _ledger_seeds),
        Target("backup_record", _read_backup_record, _backup_record_seeds),
        Target("inventory_csv", _inventory_rows("csv"), lambda: [_inventory_csv(), gzip.compress(_inventory_csv())]),
        Target("inventory_parquet", _inventory_rows("parquet"), lambda: [_inventory_parquet()]),
        Target(
            "inventory_manifest",
            _inventory_manifest("2026-01-02T03-04Z/manifest.json", "s3://bucket/ns"),
            lambda: [json.dumps(_INVENTORY_MANIFEST).encode()],
        ),
        Target(
            "inventory_manifest_azure",
            _inventory_manifest(
                "2026/01/02/03-04-05/r/r-manifest.json", "https://acct.blob.core.windows.net/container/ns"
            ),
            lambda: [json.dumps(_AZURE_MANIFEST).encode()],
        ),
        Target(
            "inventory_manifest_gcs",
            _inventory_manifest("r_2026-01-02T03:04_manifest.json", "gs://bucket/ns"),
            lambda: [json.dumps(_GCS_MANIFEST).encode()],
        ),
        Target("summary", _read_summary, _summary_seeds),
        Target("mark", _read_mark, _mark_seeds, _SEALED_JSON, sealed=True),
        Target("backup", _read_backup, _backup_seeds, _SEALED_JSON, sealed=True),
        Target("approval", _read_approval, lambda: [_approval().to_json()]),
        Target("manifest", _read_manifest, _manifest_seeds, (CorruptFileError, InputOrderError)),
        Target("settings", _read_settings, lambda: [_SETTINGS, b""], (ConfigurationError,)),
        Target("lakectl", _read_lakectl, lambda: [_LAKECTL], (ConfigurationError,)),
    )
}
