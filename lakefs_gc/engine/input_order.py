"""Rule 1: the inputs of a stage belong to one run, are in order, and were made from each other."""

from __future__ import annotations

from itertools import pairwise

from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import InputOrderError


def check_inputs(run_key: str, *in_order: Dataset | DatasetManifest) -> None:
    """Rule 1: the inputs belong to this run, and each began after the one before it had ended.

    The times are of the machines that the stages ran on, each checked by ``continue_run``.
    Raises ``InputOrderError``, which says what to materialize again.
    """
    manifests = [i.manifest if isinstance(i, Dataset) else i for i in in_order]
    for manifest in manifests:
        if manifest.run_key != run_key:
            raise InputOrderError(
                f"{manifest.stage} is of run {manifest.run_key}, not of {run_key}", remedy="start a new run"
            )
    for earlier, later in pairwise(manifests):
        if later.began_at < earlier.ended_at:
            raise InputOrderError(
                f"{later.stage} of {run_key} began ({later.began_at.isoformat()}) before {earlier.stage} had ended "
                f"({earlier.ended_at.isoformat()}): an object that moved in between would be in neither",
                remedy=f"materialize {later.stage} and everything after it again, or start a new run",
            )


def check_made_from(later: Dataset, *earlier: Dataset) -> None:
    """Rule 1: ``later`` was made from these very materializations.

    Raises ``InputOrderError``, which says what to materialize again.
    """
    for stage, materialization_id in ((e.manifest.stage, e.manifest.materialization_id) for e in earlier):
        if later.manifest.inputs.get(stage) != materialization_id:
            raise InputOrderError(
                f"{later.manifest.stage} was made from another materialization of {stage} than the one that is there "
                "now",
                remedy=f"materialize {later.manifest.stage} and everything after it again, or start a new run",
            )


def check_alike(stage: str, *made: Dataset) -> None:
    """Rule 1: all of these were made from one and the same materialization of ``stage``.

    Raises ``InputOrderError``, which says what to materialize again.
    """
    for one, other in pairwise(made):
        if one.manifest.inputs.get(stage) != other.manifest.inputs.get(stage):
            raise InputOrderError(
                f"{one.manifest.stage} and {other.manifest.stage} were made from different materializations of {stage}",
                remedy=f"materialize everything after {stage} again, or start a new run",
            )
