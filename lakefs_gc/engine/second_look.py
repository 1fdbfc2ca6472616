"""Rule 6: before a sweep, look again at everything that is referenced.

Between a mark and its sweep a revert, a new branch, a longer retention or a copy can bring an object back.  The same
stages that fed the mark run once more, in the same order, and whatever they find is not deleted.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import SafetyParameters, Settings
from lakefs_gc.engine import schemas
from lakefs_gc.engine.active_ranges import active_ranges
from lakefs_gc.engine.committed import committed
from lakefs_gc.engine.dataset import Clock, Dataset, StageOutput, WorkPlace
from lakefs_gc.engine.foreign_references import foreign_references
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.uncommitted import uncommitted
from lakefs_gc.engine.unreferenced import refuse_unproved_emptiness
from lakefs_gc.server import LakeFSServer

_PREFIX = "second_look_"


def second_look(
    spark: SparkSession,
    run: GCRun,
    *,
    work_place: WorkPlace,
    server: LakeFSServer,
    settings: Settings,
    safety: SafetyParameters,
    clock: Clock,
    cores: int,
) -> DataFrame:
    """Every address that is referenced now.  Columns: ``address``, not distinct.  Raises what the stages raise."""

    def keep(stage: str, output: StageOutput) -> Dataset:
        name = _PREFIX + stage
        work_place.write(spark, run.run_key, name, output)
        return work_place.read(spark, run.run_key, name, schemas.BY_STAGE[stage])

    staged = keep("uncommitted", uncommitted(spark, run, server, safety, clock))
    ranges = keep("active_ranges", active_ranges(spark, run, staged, server, safety, clock, cores=cores))
    live = keep("committed", committed(run, ranges, clock, cores=cores))
    if live.manifest.rows == 0:
        refuse_unproved_emptiness(server, run)
    foreign = keep("foreign_references", foreign_references(spark, run, server, settings, safety, clock, cores=cores))
    return reduce(DataFrame.unionByName, (seen.dataframe.select("address") for seen in (staged, live, foreign)))
