"""``lakefs-gc package``: the archive for the executors of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from lakefs_gc.cli.output import Output

MakeOutput = Callable[[bool], Output]


def register(app: typer.Typer, make_output: MakeOutput) -> None:
    """Add the command.  ``make_output`` is called with whether JSON is wanted."""

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
        from lakefs_gc.package import make_package

        out = make_output(json)
        with out.progress(f"packing {output.name}"):
            made = make_package(output, url=url, with_driver=with_driver)

        def settings() -> None:
            out.say("[spark]")
            for name, value in made.spark.items():
                out.say(f'"{name}" = "{value}"')

        out.result(made.facts(), settings)
