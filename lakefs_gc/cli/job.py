"""``lakefs-gc job``: what a job on EMR runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from lakefs_gc.terminal.output import Output

MakeOutput = Callable[[], Output]


def register(app: typer.Typer, make_output: MakeOutput) -> None:
    """Add the command."""

    @app.command()
    def job(name: Annotated[str, typer.Argument(help="gc_mark, gc_backup or gc_sweep.")]) -> None:
        """Run a job for the Dagster that started this process on EMR, and report to it.  Not for people."""
        from lakefs_gc.pipeline.emr_job import run_job

        out = make_output()
        with out.progress(name):
            run_job(name)
