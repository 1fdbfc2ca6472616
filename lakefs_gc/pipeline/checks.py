"""The checks of a mark as Dagster's asset checks."""

from __future__ import annotations

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec

from lakefs_gc.engine.records.check import CHECKS, Check


def check_specs(asset: str) -> list[AssetCheckSpec]:
    """Return the spec of each check. A failed check of severity ERROR blocks the assets downstream in the same run."""
    return [
        AssetCheckSpec(name, asset=asset, description=description, blocking=True)
        for name, description in CHECKS.items()
    ]


def check_results(asset: str, checks: tuple[Check, ...]) -> list[AssetCheckResult]:
    """Return the check results of a mark as results of asset checks."""
    return [
        AssetCheckResult(
            asset_key=asset,
            check_name=check.name,
            passed=check.passed,
            severity=AssetCheckSeverity(check.severity.value),
            metadata={"answer": check.answer.value, "message": check.message},
        )
        for check in checks
    ]
