"""Every safety rule names modules that enforce it, and tests, that exist."""

from __future__ import annotations

import re

import pytest

from lakefs_gc_tests.docs.generate import DOCS, ROOT

RULES = 12
TEXT = (DOCS / "safety.md").read_text("utf-8")


def rules() -> dict[int, str]:
    """Return the text of each rule, by its number."""
    parts = re.split(r"^## (?:(\d+)\. )?", TEXT, flags=re.MULTILINE)[1:]
    return {int(number): text for number, text in zip(parts[::2], parts[1::2], strict=True) if number}


def test_the_rules_are_numbered() -> None:
    assert list(rules()) == list(range(1, RULES + 1))


@pytest.mark.parametrize("number", range(1, RULES + 1))
def test_every_rule_has_modules_and_tests_that_exist(number: int) -> None:
    enforced_by, _, tests = rules()[number].partition("*Tests:*")
    for names, folder in ((enforced_by.partition("*Enforced by*")[2], "lakefs_gc"), (tests, "lakefs_gc_tests")):
        named = re.findall(r"`([a-z0-9_/]+(?:\.py|\.yaml|/))`", names)
        assert named, number
        assert [name for name in named if not (ROOT / folder / name).exists()] == []


def test_what_is_named_beside_a_module_is_in_it() -> None:
    """`engine/run.py` (`begin_run`, `continue_run`)."""
    pairs = re.findall(r"`([a-z0-9_/]+\.py)` \(((?:`\w+`(?:, )?)+)\)", TEXT)
    assert len(pairs) > RULES
    for module, names in pairs:
        source = (ROOT / "lakefs_gc" / module).read_text("utf-8")
        assert [name for name in re.findall(r"`(\w+)`", names) if not re.search(rf"\b{name}\b", source)] == [], module
