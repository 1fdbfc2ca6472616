"""The checks of a mark as Dagster's asset checks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from dagster import AssetCheckResult, AssetCheckSeverity, AssetCheckSpec
from dagster._utils.warnings import PreviewWarning

from lakefs_gc.engine.records.check import CHECKS, Check
from lakefs_gc.pipeline.names import OWN, Names
from lakefs_gc.report.meanings import MEANINGS


def check_specs(asset: str, names: Names = OWN) -> list[AssetCheckSpec]:
    """Return the spec of each check. A failed check of severity ERROR blocks the assets downstream in the same run.

    The checks have the partitions of the asset: otherwise the UI shows those of the repository that ran last.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PreviewWarning)  # of partitions of checks
        return [
            AssetCheckSpec(
                name, asset=names.key(asset), description=description, blocking=True, partitions_def=names.runs
            )
            for name, description in CHECKS.items()
        ]


def check_results(checks: tuple[Check, ...], numbers: Mapping[str, Mapping[str, float]]) -> list[AssetCheckResult]:
    """Return the check results of a mark as results of the checks of its asset, with the ``numbers`` of each check."""
    return [
        AssetCheckResult(
            check_name=check.name,
            passed=check.passed,
            severity=AssetCheckSeverity(check.severity.value),
            metadata={
                "answer": check.answer.value,
                "message": check.message,
                **({} if check.passed else {"meaning": MEANINGS[check.name]}),
                **({"override": f"--override {check.name}"} if check.blocks_sweep else {}),
                **numbers.get(check.name, {}),
            },
        )
        for check in checks
    ]
