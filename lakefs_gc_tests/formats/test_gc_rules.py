"""Retention rules, as JSON and as lakeFS's file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakefs_gc.errors import ConfigurationError, CorruptFileError
from lakefs_gc.formats.gc_rules import (
    RULES_KEY,
    GCRules,
    decode_rules,
    encode_rules,
    rules_from_api,
    rules_to_api,
)
from lakefs_gc_tests.golden import golden_file, golden_files, scenarios

STORED = [name for name in scenarios() if f"namespace/{RULES_KEY}" in golden_files(name)]
RULES = GCRules(14, {"main": 21, "é": -5, "": 0})


def exchanges(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in golden_file(name, "api/exchanges.jsonl").splitlines()]


SET = [
    (name, exchange["seq"])
    for name in scenarios()
    for exchange in exchanges(name)
    if exchange["method"] == "PUT"
    and exchange["path"].endswith("/settings/gc_rules")
    and exchange["status"] in (204, 400)
]


@pytest.mark.parametrize(("name", "seq"), SET)
def test_rules_are_accepted_and_read_back_as_on_the_server(name: str, seq: int) -> None:
    put = next(e for e in exchanges(name) if e["seq"] == seq)
    try:
        body = json.loads(put["request_body"])
    except ValueError:
        return  # no JSON: nothing for this module
    if put["status"] == 400:
        with pytest.raises(ConfigurationError, match="Invalid retention rules"):
            rules_from_api(body)
        return
    rules = rules_from_api(body)
    assert decode_rules(encode_rules(rules)) == rules
    answer = next((e for e in exchanges(name) if e["seq"] == seq + 1), None)
    if answer and answer["method"] == "GET" and answer["path"] == put["path"] and answer["status"] == 200:
        assert rules_from_api(json.loads(answer["response_body"])) == rules


@pytest.mark.parametrize("name", STORED)
def test_stored_rules(name: str) -> None:
    stored = golden_file(name, f"namespace/{RULES_KEY}")
    rules = decode_rules(stored)
    if name == "no-rules":
        assert (stored, rules) == (b"", None)
        return
    assert rules is not None
    assert rules == rules_from_api(json.loads(golden_file(name, "api/gc_rules.json")))
    assert encode_rules(rules) == stored


def test_the_last_of_two_rules_for_a_branch_holds() -> None:
    twice = [{"branch_id": "dev", "retention_days": 7}, {"branch_id": "dev", "retention_days": 3}]
    assert rules_from_api({"default_retention_days": 1, "branches": twice}) == GCRules(1, {"dev": 3})


def test_no_branches_are_null_in_the_api() -> None:
    assert rules_to_api(GCRules(7)) == {"branches": None, "default_retention_days": 7}
    assert rules_from_api({"branches": None, "default_retention_days": 7}) == GCRules(7)


def test_round_trips() -> None:
    assert decode_rules(encode_rules(RULES)) == RULES
    assert rules_from_api(json.loads(json.dumps(rules_to_api(RULES)))) == RULES
    assert encode_rules(None) == b""


def test_retention_days_of_a_branch() -> None:
    assert [RULES.retention_days(branch) for branch in ("main", "", "other")] == [21, 0, 14]


@pytest.mark.parametrize("damage", [b"\x12\x05\x0a", b"\x08", b"\x12\x03\x0a\x01\xff", b"\x0a\x00", b"\xff" * 11])
def test_damaged_files_are_refused(damage: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"^_lakefs/retention/gc/rules/config\.json: "):
        decode_rules(encode_rules(RULES) + damage)
