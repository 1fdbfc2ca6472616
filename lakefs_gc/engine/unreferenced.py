"""Stage 6: which old objects no list refers to.

unreferenced = listing (older than the cutoff, where garbage can be) - committed - uncommitted - foreign references
"""

from __future__ import annotations

from pyspark.sql import functions as F

from lakefs_gc.engine.active_ranges import METADATA_FOLDER
from lakefs_gc.engine.ages import age_measures
from lakefs_gc.engine.committed import live_addresses
from lakefs_gc.engine.dataset import Clock, Dataset, StageOutput
from lakefs_gc.engine.run import GCRun, check_inputs, check_made_from
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.addresses import CANDIDATE_ADDRESS_REGEX
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.server import LakeFSServer
from lakefs_gc.storage.open import open_store


def unreferenced(
    run: GCRun,
    *,
    listing: Dataset,
    uncommitted: Dataset,
    active_ranges: Dataset,
    committed: Dataset,
    foreign_references: Dataset,
    server: LakeFSServer,
    clock: Clock,
) -> StageOutput:
    """Subtract what is referenced from what is stored.  Columns: ``schemas.UNREFERENCED``.

    Raises ``InputOrderError`` for inputs that are out of order, of different runs, or not made from each other (rule
    1), and ``SafetyError`` when nothing is committed although the branches have content (rule 3).
    """
    began_at = clock()
    check_inputs(run.run_key, listing, uncommitted, active_ranges, committed)
    check_inputs(run.run_key, listing, foreign_references)
    check_made_from(committed, active_ranges)
    check_made_from(active_ranges, uncommitted)
    if committed.manifest.rows == 0:
        refuse_unproved_emptiness(server, run)
    left = listing.dataframe.where(F.col("last_modified") < F.lit(run.cutoff))
    left = left.where(F.col("address").rlike(CANDIDATE_ADDRESS_REGEX))
    for referenced in (committed, uncommitted, foreign_references):
        left = left.join(referenced.dataframe.select("address"), "address", "left_anti")
    return StageOutput(
        dataframe=left,
        began_at=began_at,
        facts={"cutoff": run.cutoff.isoformat()},
        measures={"size_bytes": F.sum("size"), **age_measures(run.started_at)},
        inputs={
            dataset.manifest.stage: dataset.manifest.materialization_id
            for dataset in (listing, uncommitted, active_ranges, committed, foreign_references)
        },
    )


def refuse_unproved_emptiness(server: LakeFSServer, run: GCRun) -> None:
    """Rule 3: an empty committed set is only believed when the content of every branch is empty or outside."""
    store = open_store(run.store)
    for branch, commit_id in server.branch_heads(run.repository):
        metarange_id = server.metarange_of(run.repository, commit_id)
        if not metarange_id:
            continue
        file = METADATA_FOLDER + metarange_id
        for range_id in read_metarange(store.read(file), file).column("range_id").to_pylist():
            key = METADATA_FOLDER + range_id
            if any(rows.num_rows for rows in live_addresses(store.read(key), key, run.namespace, None)):
                raise SafetyError(
                    f"no committed object was found in {run.repository}, but branch {branch} has some",
                    remedy="look at the rules and at the lakeFS server's log of prepare_commits; nothing was marked",
                )
