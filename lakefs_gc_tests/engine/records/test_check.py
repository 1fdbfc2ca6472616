"""The table of checks, and what a failed one blocks (rules 8 and 12)."""

from __future__ import annotations

import logging

import pytest
from dagster import AssetCheckSeverity

from lakefs_gc.engine.records.check import (
    CHECKS,
    FORMER_NAMES,
    SWEEP_CHECKS,
    WARNING_CHECKS,
    Answer,
    Check,
    Severity,
    current_name,
    failed_checks,
)


@pytest.mark.parametrize("answer", Answer)
@pytest.mark.parametrize("severity", Severity)
def test_a_failed_check_blocks_unless_it_only_warns(answer: Answer, severity: Severity) -> None:
    check = Check("share_of_bytes", answer, "", severity)
    assert check.passed == (answer is Answer.SAFE)
    assert check.blocks_sweep == (answer is not Answer.SAFE and severity is Severity.ERROR)
    assert failed_checks([check]) == ([] if check.passed else [check])


def test_a_check_of_no_severity_blocks() -> None:
    assert Check("share_of_bytes", Answer.UNKNOWN, "").blocks_sweep


def test_severities_are_those_of_dagster() -> None:
    assert {severity.value for severity in Severity} == {severity.value for severity in AssetCheckSeverity}


def test_names_are_of_one_table() -> None:
    assert CHECKS.keys() > WARNING_CHECKS
    assert not CHECKS.keys() & SWEEP_CHECKS.keys()
    assert set(FORMER_NAMES.values()) <= CHECKS.keys()
    assert not FORMER_NAMES.keys() & (CHECKS.keys() | SWEEP_CHECKS.keys())
    assert all(description.endswith(".") for description in (*CHECKS.values(), *SWEEP_CHECKS.values()))


def test_a_former_name_is_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert current_name("share_of_bytes", "an override") == "share_of_bytes"
        assert current_name("unheard_of", "an override") == "unheard_of"
    assert caplog.messages == []
    for former, current in FORMER_NAMES.items():
        with caplog.at_level(logging.WARNING):
            assert current_name(former, "an override") == current
        assert f"an override uses the former check name {former}: use {current}" in caplog.messages[-1]
