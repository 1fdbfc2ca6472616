"""The commands of the embedded server: ``demo`` and ``sandbox``. They need the extra ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakefs_gc.cli.extras import require_demo_extra
from lakefs_gc.cli.options import OPTIONS
from lakefs_gc.errors import ConfigurationError


def demo(
    store: Annotated[
        str,
        typer.Option(
            help="Where the objects are: local, s3 (SeaweedFS from PyPI), azure (Azurite from npm), or gcs "
            "(fake-gcs-server, written in Go)."
        ),
    ] = "local",
    ui: Annotated[bool, typer.Option("--ui", help="Keep Dagster's UI open afterwards.")] = False,
    port: Annotated[int, typer.Option(help="Port of the UI.")] = 3000,
    compiled: Annotated[bool, typer.Option("--compiled", hidden=True, help="For `warm-up`.")] = False,
) -> None:
    """Run the whole pipeline on an embedded lakeFS-compatible server, with a repository made for it."""
    if store not in ("local", "s3", "azure", "gcs"):
        raise ConfigurationError(
            f"Unknown store {store!r}", remedy="Pass --store local, --store s3, --store azure or --store gcs"
        )
    require_demo_extra("demo")
    from lakefs_gc.demo.play import play  # needs the extra; loads Dagster and Spark

    play(OPTIONS.output(), store=store, ui_port=port if ui else None, compiled=compiled)


def sandbox(
    folder: Annotated[Path, typer.Option(help="Folder for refs and objects.")] = Path("lakefs-gc-sandbox"),
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    store: Annotated[
        str,
        typer.Option(help="Where objects go: s3://bucket/prefix or file:///folder. Default: in --folder."),
    ] = "",
    grace_period: Annotated[
        str,
        typer.Option(metavar="5s", help="The grace period that the server reports, as 30s, 5m, 36h or 2d."),
    ] = "1d",
    token_lifetime: Annotated[
        str,
        typer.Option(metavar="5s", help="How long an upload link is valid. Default and maximum: the grace period."),
    ] = "",
    slice_age: Annotated[str, typer.Option(metavar="1h", help="A new slice begins after this time.")] = "1h",
    slice_size: Annotated[int, typer.Option(min=1, help="A new slice begins after this number of addresses.")] = 50_000,
    like_lakefs: Annotated[
        bool,
        typer.Option(
            "--like-lakefs",
            help="Behave like lakeFS 1.84 where the server differs from it: links can be used repeatedly, staging "
            "inside the namespace is accepted, and each copy is a new object.",
        ),
    ] = False,
) -> None:
    """Run the embedded lakeFS-compatible server. For demos and tests only.

    With a short grace period and the same minimum age, expiry can be tried in seconds:
    `lakefs-gc sandbox --grace-period 5s`, then `lakefs-gc mark REPOSITORY --min-age 5s`.
    """
    require_demo_extra("sandbox")
    from lakefs_gc.cli.embedded_server import sandbox_options, serve_sandbox  # needs the extra

    options = sandbox_options(
        grace_period=grace_period,
        token_lifetime=token_lifetime,
        slice_age=slice_age,
        slice_size=slice_size,
        is_like_lakefs=like_lakefs,
    )
    serve_sandbox(OPTIONS.output(), folder, host, port, store, options)
