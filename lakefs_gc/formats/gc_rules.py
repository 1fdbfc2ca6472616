"""The retention rules of a repository: the number of days that a commit stays active after it was superseded.

The API shows them as JSON. lakeFS stores them as a small protobuf message in
``_lakefs/retention/gc/rules/config.json`` (sic). An empty file (rules were deleted) and a missing file mean the same:
no rules. That differs from a rule of zero days.

Source: lakeFS ``pkg/graveler/graveler.proto`` (``GarbageCollectionRules``), ``api/swagger.yml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats import protobuf

RULES_KEY = "_lakefs/retention/gc/rules/config.json"
"""The key of the rules, relative to the namespace."""

_INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class GCRules:
    """Days of retention: of each branch with its own rule, and of all other branches.

    Zero days keep only the head of a branch. The server accepts negative days, and treats them as zero.
    A rule may name a branch that does not exist.
    """

    default_retention_days: int
    branches: dict[str, int] = field(default_factory=dict)

    def retention_days(self, branch: str) -> int:
        """Return the days of retention of a branch."""
        return self.branches.get(branch, self.default_retention_days)


def rules_from_api(body: Any) -> GCRules:
    """Return the rules of the API's JSON object; the last of several rules for one branch applies, as on the server.

    Raise ``ConfigurationError`` if a field is missing or of the wrong type; the server refuses such rules too.
    """
    if not isinstance(body, Mapping):
        raise _bad_rules("the rules must be a JSON object")
    branches = body.get("branches", "missing")
    if branches is None:  # how the server shows an empty list
        branches = []
    if not isinstance(branches, list):
        raise _bad_rules("'branches' must be a list")
    days_of = {}
    for rule in branches:
        branch = rule.get("branch_id") if isinstance(rule, Mapping) else None
        if not isinstance(branch, str):
            raise _bad_rules("each rule of a branch must have a 'branch_id'")
        days_of[branch] = _days(rule, "retention_days")
    return GCRules(_days(body, "default_retention_days"), days_of)


def rules_to_api(rules: GCRules) -> dict[str, Any]:
    """Return the JSON object that the server answers; ``branches`` is null if no branch has a rule."""
    branches = [{"branch_id": branch, "retention_days": days} for branch, days in rules.branches.items()]
    return {"branches": branches or None, "default_retention_days": rules.default_retention_days}


def rules_to_record(rules: GCRules | None) -> dict[str, Any] | None:
    """Return the rules as marks record them; None if the repository has no rules."""
    return None if rules is None else {"default_days": rules.default_retention_days, "branches": dict(rules.branches)}


def rules_from_record(content: Mapping[str, Any] | None) -> GCRules | None:
    """Return the rules that a mark records."""
    return None if content is None else GCRules(content["default_days"], dict(content["branches"]))


def decode_rules(data: bytes, file: str = RULES_KEY) -> GCRules | None:
    """Return the rules of lakeFS's file; None if it is empty (rules were deleted). Raise ``CorruptFileError``."""
    if not data:
        return None
    default_days = 0
    branches: dict[str, int] = {}
    for number, value in protobuf.decode_fields(data, file=file):
        if number == 1:
            default_days = protobuf.integer(value, file=file, bits=32)
        elif number == 2:
            branch, days = "", 0
            for item_number, item in protobuf.decode_fields(protobuf.binary(value, file=file), file=file):
                if item_number == 1:
                    branch = protobuf.text(item, file=file)
                elif item_number == 2:
                    days = protobuf.integer(item, file=file, bits=32)
            branches[branch] = days
    return GCRules(default_days, branches)


def encode_rules(rules: GCRules | None) -> bytes:
    """Return the content of lakeFS's file; empty without rules.

    A rule of zero days for all branches is also encoded as an empty file: lakeFS itself does not distinguish them.
    """
    if rules is None:
        return b""
    items = b"".join(
        protobuf.bytes_field(
            2,
            protobuf.bytes_field(1, branch.encode(), keep_empty=True)
            + protobuf.encode_varint(2 << 3 | protobuf.VARINT)
            + protobuf.encode_varint(days),
        )
        for branch, days in rules.branches.items()
    )
    return protobuf.integer_field(1, rules.default_retention_days) + items


def _days(body: Mapping[str, Any], name: str) -> int:
    days = body.get(name)
    if not isinstance(days, int) or isinstance(days, bool) or not -_INT32_MAX - 1 <= days <= _INT32_MAX:
        raise _bad_rules(f"{name!r} must be a whole number of days, not {days!r}")
    return days


def _bad_rules(reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"Invalid retention rules: {reason}",
        remedy='Use this form: {"default_retention_days": 7, "branches": [{"branch_id": "main", "retention_days": 9}]}',
    )
