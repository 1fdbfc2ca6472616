"""The datasets that the looks of a sweep keep in the workspace."""

from __future__ import annotations

from pyspark.sql.types import StructType

from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput


class LookDatasets:
    """Keeps the datasets of one look after another, so that none overwrites what an earlier look has kept."""

    def __init__(self, context: RunContext, run: GCRun) -> None:
        self._context, self._run = context, run
        self._looks = 0

    def begin_look(self) -> None:
        """From now on, datasets are those of the next look."""
        self._looks += 1

    def name(self, stage: str) -> str:
        """Return the name of a dataset of this look."""
        return f"look_{self._looks}_{stage}"

    def keep(self, stage: str, output: StageOutput, again: str = "", schema: StructType | str | None = None) -> Dataset:
        """Keep ``output``. ``again`` tells the readings of one stage apart.

        ``schema`` is by default that of the stage, and that of ``output`` for what is not a stage.
        """
        context, name = self._context, self.name(f"{stage}{again}")
        schema = schema or schemas.BY_STAGE.get(stage)
        return context.workspace.keep(context.spark, self._run.run_key, name, output, schema)
