"""The content of the simulated store, and its answers in S3's protocol.

Source of the format: AWS S3 API reference.
"""

from __future__ import annotations

import json
import re
import resource
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote_to_bytes
from xml.sax.saxutils import escape, unescape

import numpy as np
import numpy.typing as npt

from lakefs_gc_tests.benchmarks.simulated_keys import Keys, KeySource

BUCKET = "simulated"
ACCOUNT, ACCOUNT_KEY = "simulatedaccount", "c2ltdWxhdGVk"
STATS = "/-/stats"
_PAGE_KEYS = 1000
_XML = b'<?xml version="1.0" encoding="UTF-8"?>\n'
_NS = b'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_CHUNK = 8192


@dataclass(frozen=True)
class StoreOptions:
    """The content and the behaviour of the store. 0 requests per second means no limit.

    ``files``: a local folder whose files are also in the store, by their paths, as if they had been written to it.
    """

    source: KeySource
    folder: str = "namespace/"
    files: Path | None = None
    latency_ms: float = 0.0
    requests_per_second: float = 0.0
    protocol: str = "s3"
    """``s3``, or one of ``simulated_protocols``."""


@dataclass(frozen=True)
class Answer:
    status: bytes = b"200 OK"
    body: bytes = b""
    headers: bytes = b""


@dataclass
class Walked:
    """The entries of a page, in order: runs of numbers of the formula and written keys, and sub-prefixes.

    ``last`` is the last key or sub-prefix, and ``more`` is whether others follow.
    """

    runs: list[npt.NDArray[np.int64] | bytes] = field(default_factory=list)
    levels: list[bytes] = field(default_factory=list)
    returned: int = 0
    last: bytes = b""
    more: bool = False


class Bucket:
    """The content, and the answers."""

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self.keys: Keys = options.source.keys(options.folder)
        self.deleted = np.zeros(len(self.keys) // 8 + 1, np.uint8)
        self.deleted_count = 0
        self.put: dict[bytes, bytes | Path] = {}
        """What was put: its content, or the file that has it."""
        if options.files:
            root = options.folder.encode()
            files = (path for path in options.files.rglob("*") if path.is_file())
            self.put = {root + str(path.relative_to(options.files)).encode(): path for path in files}
        self.put_order = sorted(self.put)
        self.requests: Counter[str] = Counter()
        self.tokens = options.requests_per_second
        self.refilled_at = time.monotonic()
        self.at_once = self.most_at_once = 0

    # -- requests

    def answer(self, method: bytes, target: bytes, body: bytes) -> Answer:
        path, _, query_text = target.partition(b"?")
        if path.decode() == STATS:
            return Answer(body=self.stats())
        query = dict(parse_qsl(query_text.decode(), keep_blank_values=True))
        if not self.admitted():
            self.requests["SlowDown"] += 1
            return self.slow_down()
        return self.respond(method, path, query, body)

    def slow_down(self) -> Answer:
        return _error(b"503 Slow Down", b"SlowDown")

    def respond(self, method: bytes, path: bytes, query: dict[str, str], body: bytes) -> Answer:
        key = unquote_to_bytes(path).lstrip(b"/").partition(b"/")[2]
        if "list-type" in query:
            self.requests["ListObjectsV2"] += 1
            return Answer(body=self._list(query))
        if method == b"POST" and "delete" in query:
            self.requests["DeleteObjects"] += 1
            return Answer(body=self._delete_objects(body))
        if "versioning" in query:
            self.requests["GetBucketVersioning"] += 1
            return Answer(body=_XML + b"<VersioningConfiguration " + _NS + b"/>")
        if method == b"PUT":
            self.requests["PutObject"] += 1
            self.write(key, body)
            return Answer(headers=b'ETag: "e"\r\n')
        if method == b"DELETE":
            self.requests["DeleteObject"] += 1
            self.delete(key)
            return Answer(b"204 No Content")
        self.requests["HeadObject" if method == b"HEAD" else "GetObject"] += 1
        return self._read(key, head=method == b"HEAD")

    def admitted(self) -> bool:
        """Return whether a token for another request is available."""
        limit = self.options.requests_per_second
        if not limit:
            return True
        now = time.monotonic()
        self.tokens = min(limit, self.tokens + (now - self.refilled_at) * limit)
        self.refilled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def stats(self) -> bytes:
        used = resource.getrusage(resource.RUSAGE_SELF)
        content = {
            "requests": dict(self.requests),
            "cpu_seconds": used.ru_utime + used.ru_stime,
            "deleted": self.deleted_count,
            "most_at_once": self.most_at_once,
        }
        return json.dumps(content).encode()

    # -- single objects

    def live(self, key: bytes) -> int | None:
        """Return the number of a key of the formula that is not deleted."""
        number = self.keys.number_of(key)
        return None if number is None or self.deleted[number >> 3] >> (number & 7) & 1 else number

    def _read(self, key: bytes, *, head: bool) -> Answer:
        number = self.live(key)
        if key in self.put:
            put = self.put[key]
            content = put.read_bytes() if isinstance(put, Path) else put
        elif number is not None:
            content = key.ljust(self.keys.size_bytes(number), b".")
        else:
            return Answer(b"404 Not Found") if head else _error(b"404 Not Found", b"NoSuchKey")
        headers = b'ETag: "e"\r\nLast-Modified: Sun, 01 Jun 2025 12:00:00 GMT\r\n'
        return Answer(body=content, headers=headers)

    def write(self, key: bytes, content: bytes) -> None:
        if key not in self.put:
            self.put_order.insert(bisect_left(self.put_order, key), key)
        self.put[key] = content

    def delete(self, key: bytes) -> None:
        if key in self.put:
            del self.put[key]
            del self.put_order[bisect_left(self.put_order, key)]
        number = self.live(key)
        if number is not None:
            self.deleted[number >> 3] |= 1 << (number & 7)
            self.deleted_count += 1

    def _delete_objects(self, body: bytes) -> bytes:
        keys = _KEY.findall(body)
        if b"&" in body:
            quotes = {"&quot;": '"', "&apos;": "'"}
            keys = [unescape(key.decode(), quotes).encode() for key in keys]
        for key in keys:
            self.delete(key)
        quiet = b"<Quiet>true</Quiet>" in body
        gone = b"" if quiet else b"".join(b"<Deleted><Key>%b</Key></Deleted>" % _escaped(key) for key in keys)
        return _XML + b"<DeleteResult " + _NS + b">" + gone + b"</DeleteResult>"

    # -- listings

    def _list(self, query: dict[str, str]) -> bytes:
        """Return a page. The token is the last returned key, or everything below the last returned sub-prefix."""
        prefix, most = query.get("prefix", "").encode(), min(_PAGE_KEYS, int(query.get("max-keys", _PAGE_KEYS)))
        after = unquote_to_bytes(query.get("continuation-token", "")) or query.get("start-after", "").encode()
        below = end_of(after) if after.endswith(b"/") and "continuation-token" in query else b""
        walked = self.walk(
            prefix, lambda key: key >= below if below else key > after, most, delimited=bool(query.get("delimiter"))
        )
        parts: list[bytes] = []
        for run in walked.runs:
            if isinstance(run, bytes):
                parts.append(_content_element(run, self.put_bytes(run)))
            else:
                parts += self.keys.contents(run)
        # Sub-prefixes come after the objects in S3's pages.
        parts += [b"<CommonPrefixes><Prefix>%b</Prefix></CommonPrefixes>" % _quoted(level) for level in walked.levels]
        token = b"<NextContinuationToken>%b</NextContinuationToken>" % _quoted(walked.last) if walked.more else b""
        return b"".join(
            [
                _XML,
                b"<ListBucketResult " + _NS + b"><Name>simulated</Name><EncodingType>url</EncodingType>",
                b"<IsTruncated>true</IsTruncated>" if walked.more else b"<IsTruncated>false</IsTruncated>",
                token,
                b"<KeyCount>%d</KeyCount>" % walked.returned,
                *parts,
                b"</ListBucketResult>",
            ]
        )

    def walk(
        self, prefix: bytes, is_after: Callable[[bytes], bool], most: int, *, delimited: bool, until: bytes = b""
    ) -> Walked:
        """Return up to ``most`` entries below a prefix: keys for which ``is_after`` is true, and sub-prefixes.

        They are before ``until``, unless that is empty.
        """
        begin = self.keys.first(lambda key: key >= prefix and is_after(key))
        end = self.keys.first(lambda key: key > prefix and not key.startswith(prefix))
        put = [key for key in self._put_below(prefix) if is_after(key) and not (until and key >= until)]
        if until:
            end = min(end, self.keys.first(lambda key: key >= until))
        walked = Walked()
        while walked.returned < most and (begin < end or put):
            own = self.keys.key(begin) if begin < end else None
            if put and (own is None or put[0] < own):
                key, from_formula = put[0], False
            else:
                key, from_formula = own or b"", True
            slash = key.find(b"/", len(prefix)) if delimited else -1
            if slash >= 0:
                walked.last = key[: slash + 1]
                walked.levels.append(walked.last)
                walked.returned += 1
                past = end_of(walked.last)
                begin = max(begin, self.keys.first(lambda key, past=past: key >= past))  # type: ignore[misc]
                put = [name for name in put if name >= past]
            elif from_formula:
                stop = self._run_end(begin, end, put, delimited=delimited)
                numbers, begin = self._next_live(begin, stop, most - walked.returned)
                walked.runs.append(numbers)
                walked.returned += len(numbers)
                walked.last = self.keys.key(int(numbers[-1])) if len(numbers) else walked.last
            else:
                walked.last = put.pop(0)
                walked.runs.append(walked.last)
                walked.returned += 1
        walked.more = bool(put) or (begin < end and self._next_live(begin, end, 1)[0].size > 0)
        return walked

    def _put_below(self, prefix: bytes) -> list[bytes]:
        begin = bisect_left(self.put_order, prefix)
        end = bisect_left(self.put_order, end_of(prefix)) if prefix else len(self.put_order)
        return self.put_order[begin:end]

    def put_bytes(self, key: bytes) -> int:
        put = self.put[key]
        return put.stat().st_size if isinstance(put, Path) else len(put)

    def _run_end(self, begin: int, end: int, put: list[bytes], *, delimited: bool) -> int:
        """Return the end of the formula's keys before the next written key or (with a delimiter) sub-prefix."""
        if delimited:
            _, within, of_folder = self.keys.prefix_of(begin)
            end = min(end, begin - within + of_folder)
        return min(end, self.keys.first(lambda key: key > put[0])) if put else end

    def _next_live(self, begin: int, end: int, most: int) -> tuple[npt.NDArray[np.int64], int]:
        """Return the next numbers that are not deleted, up to a maximum, and the number to continue with."""
        live_numbers: list[npt.NDArray[np.int64]] = []
        count = 0
        while begin < end and count < most:
            stop = min(end, begin + max(most - count, 0 if not self.deleted_count else _CHUNK))
            numbers = np.arange(begin, stop, dtype=np.int64)
            if self.deleted_count:
                numbers = numbers[(self.deleted[numbers >> 3] >> (numbers & 7) & 1) == 0][: most - count]
            live_numbers.append(numbers)
            count += len(numbers)
            begin = int(numbers[-1]) + 1 if count >= most else stop
        return (np.concatenate(live_numbers) if live_numbers else np.empty(0, np.int64)), begin


def _error(status: bytes, code: bytes) -> Answer:
    return Answer(status, _XML + b"<Error><Code>%b</Code><Message>simulated</Message></Error>" % code)


def _quoted(key: bytes) -> bytes:
    return quote(key, safe="/").encode()


def _escaped(key: bytes) -> bytes:
    return escape(key.decode()).encode()


def _content_element(key: bytes, size_bytes: int) -> bytes:
    return (
        b"<Contents><Key>%b</Key><LastModified>2025-06-01T12:00:00.000Z</LastModified>"
        b"<ETag>&quot;e&quot;</ETag><Size>%d</Size></Contents>" % (_quoted(key), size_bytes)
    )


def end_of(prefix: bytes) -> bytes:
    """Return the smallest text that sorts after all texts with this UTF-8 prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b""
