"""Stage 7, ``kept``: the unreferenced objects that are kept, and why.

Three searches find them: hidden twins (``hidden_twins``), staged objects that the server's list omits
(``unlisted_changes``), and objects that a commit has below a protected path (``protected_paths``). An object that could
not be looked up is kept unverified (rule 12). The next stage removes these objects from the candidates.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from lakefs_gc.engine.collect.references.active_ranges import LATER_BRANCHES, later_branches, metaranges_so_far
from lakefs_gc.engine.decide.matching.unmatched import UNLISTED_WRONG_SIZES, hiding_any_size, unreferenced_objects
from lakefs_gc.engine.decide.protected_paths import protected_paths
from lakefs_gc.engine.decide.shown.lookups import TwinSearch
from lakefs_gc.engine.decide.shown.shown_objects import find_shown
from lakefs_gc.engine.input_order import check_inputs, check_made_from
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput


def kept(context: RunContext, run: GCRun, *, uncommitted: Dataset, unmatched: Dataset, missing: Dataset) -> StageOutput:
    """Return the unreferenced objects that are not collected. Columns: ``schemas.KEPT``.

    An address has one row for each reason. ``facts`` has the protected ``path_prefixes``. Raises ``InputOrderError``
    (rule 1), and what reading a range and calling the server raise.
    """
    began_at = context.clock()
    check_inputs(run.run_key, uncommitted, unmatched, missing)
    check_made_from(unmatched, uncommitted)
    check_made_from(missing, unmatched)
    unlisted_sizes = missing.manifest.facts.get(UNLISTED_WRONG_SIZES)
    context.server.expect_branches(run.repository, unmatched.manifest.facts.get(LATER_BRANCHES, ()))
    unreferenced = unreferenced_objects(unmatched.dataframe)
    search = TwinSearch(context, run, "twins", hiding_any_size(unmatched, unlisted_sizes))
    shown = find_shown(unreferenced, uncommitted.manifest.facts, search, for_mark=True)
    protected = protected_paths(context, run, unreferenced, lambda: metaranges_so_far(context, run))
    return StageOutput(
        dataframe=shown.objects.unionByName(protected),
        began_at=began_at,
        facts={
            "path_prefixes": list(context.safety.protect.path_prefixes),
            UNLISTED_WRONG_SIZES: unlisted_sizes,
            LATER_BRANCHES: later_branches(context, run, uncommitted),
        },
        measures={
            "size_bytes": F.sum("size"),
            "shielded": F.count_if(F.col("why") == schemas.KEPT_UNVERIFIED),
            "shielded_bytes": F.sum(F.when(F.col("why") == schemas.KEPT_UNVERIFIED, F.col("size"))),
            "protected": F.count_if(F.col("why") == schemas.PROTECTED),
            "protected_bytes": F.sum(F.when(F.col("why") == schemas.PROTECTED, F.col("size"))),
        },
        inputs={
            dataset.manifest.stage: dataset.manifest.materialization_id for dataset in (uncommitted, unmatched, missing)
        },
    )
