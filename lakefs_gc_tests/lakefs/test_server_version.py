"""The oldest version of lakeFS that works."""

from __future__ import annotations

import pytest

from lakefs_gc.lakefs.server_version import LEAST_VERSION, LEAST_VERSION_TEXT, is_new_enough


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        ("0.111.0", True),
        ("v1.0.0", True),
        ("1.84.0-3-gabcdef", True),
        ("lakefs-gc-sandbox-0.1.0", True),
        ("0.110.9", False),
        ("0.99.1", False),
        ("dev-abcdef", None),
        ("unknown", None),
        ("", None),
        ("1.84", None),
    ],
)
def test_versions_are_compared_as_numbers(version: str, answer: bool | None) -> None:
    assert is_new_enough(version) is answer


def test_the_text_is_the_version() -> None:
    assert ".".join(map(str, LEAST_VERSION[:2])) == LEAST_VERSION_TEXT
