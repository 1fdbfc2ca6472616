"""The brakes as asset checks: what the Dagster UI shows of them."""

from __future__ import annotations

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec

from lakefs_gc.engine.decide.checks import BRAKES, Brake


def brake_specs(asset: str) -> list[AssetCheckSpec]:
    """A check for each brake.  One with the severity ERROR that has not passed blocks what follows in the same run."""
    return [AssetCheckSpec(name, asset=asset, description=says, blocking=True) for name, says in BRAKES.items()]


def brake_results(asset: str, brakes: tuple[Brake, ...]) -> list[AssetCheckResult]:
    """The checks, from what a mark has."""
    return [
        AssetCheckResult(
            asset_key=asset,
            check_name=brake.name,
            passed=brake.passed,
            severity=AssetCheckSeverity.ERROR if brake.blocks else AssetCheckSeverity.WARN,
            metadata={"answer": brake.answer.value, "message": brake.message},
        )
        for brake in brakes
    ]
