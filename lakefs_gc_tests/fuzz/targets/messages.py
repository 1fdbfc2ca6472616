"""The entries of ranges, and retention rules, as lakeFS's messages and as answers of its API."""

from __future__ import annotations

import json
import re
from typing import Any

from lakefs_gc.errors import (
    ConfigurationError,
)
from lakefs_gc.formats import (
    entry,
    gc_rules,
    range_data,
)
from lakefs_gc_tests.fuzz.targets.target import FILE, REFUSED, Finding, Target, agree


def _entries() -> list[entry.Entry]:
    return [
        entry.Entry("data/slice/id,signature", entry.AddressType.RELATIVE, 12, 1_700_000_000_123_456_789, "etag"),
        entry.Entry("s3://bucket/über", entry.AddressType.FULL, 1 << 40, -1, "", {"a": "b", "": "é"}, "text/plain"),
        entry.Entry("", entry.AddressType.BY_PREFIX, 0, 0),
    ]


def _read_entry(data: bytes) -> Any:
    decoded = entry.decode_entry(data, file=FILE)
    agree(entry.decode_entry(entry.encode_entry(decoded)), decoded, "an entry, written and read again")
    if not re.fullmatch(r"[0-9a-f]{64}", entry.entry_identity(decoded).hex()):
        raise Finding("an identity of another length")
    decoded.last_modified  # noqa: B018 - every time that is accepted must fit
    return decoded


def _read_value(data: bytes) -> Any:
    identity, content = entry.decode_value(data, file=FILE)
    agree(entry.decode_value(entry.encode_value(identity, content)), (identity, content), "a value, read again")
    described = range_data.decode_range_data(content, file=FILE)
    again = range_data.decode_range_data(range_data.encode_range_data(described))
    agree(again, described, "range data, written and read again")
    return described


def _value_seeds() -> list[bytes]:
    described = [range_data.RangeData(b"a", b"b", 100, 3), range_data.RangeData(b"", b"\xff", (1 << 64) - 1, -1)]
    return [entry.encode_value(b"i" * 64, range_data.encode_range_data(item)) for item in described]


def _read_rules(data: bytes) -> Any:
    rules = gc_rules.decode_rules(data)
    if rules is not None and (rules.default_retention_days or rules.branches):
        agree(gc_rules.decode_rules(gc_rules.encode_rules(rules)), rules, "rules, written and read again")
        agree(gc_rules.rules_from_api(gc_rules.rules_to_api(rules)), rules, "rules, by way of the API")
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
    agree(gc_rules.rules_from_api(gc_rules.rules_to_api(rules)), rules, "rules, shown and read again")
    return rules


def _api_rules_seeds() -> list[bytes]:
    rules = gc_rules.GCRules(14, {"main": 21, "feature/x": 0})
    return [json.dumps(gc_rules.rules_to_api(item)).encode() for item in (rules, gc_rules.GCRules(7))]


TARGETS = (
    Target("entry", _read_entry, lambda: [entry.encode_entry(item) for item in _entries()]),
    Target("value", _read_value, _value_seeds),
    Target("rules", _read_rules, _rules_seeds),
    Target("rules_of_api", _read_api_rules, _api_rules_seeds, (ConfigurationError,)),
)
