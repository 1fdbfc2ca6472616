"""The commands of the embedded server: ``demo`` and ``sandbox``. They need the extra ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakefs_gc.cli.extras import require_demo_extra
from lakefs_gc.cli.options import OPTIONS
from lakefs_gc.errors import ConfigurationError


def demo(
    store: Annotated[str, typer.Option(help="Where the objects are: local, or s3 (SeaweedFS from PyPI).")] = "local",
    ui: Annotated[bool, typer.Option("--ui", help="Keep Dagster's UI open afterwards.")] = False,
    port: Annotated[int, typer.Option(help="Port of the UI.")] = 3000,
) -> None:
    """Run the whole pipeline on an embedded lakeFS-compatible server, with a repository made for it."""
    if store not in ("local", "s3"):
        raise ConfigurationError(f"Unknown store {store!r}", remedy="pass --store local or --store s3")
    require_demo_extra("demo")
    from lakefs_gc.demo.play import play  # needs the extra; loads Dagster and Spark

    play(OPTIONS.output(), store=store, ui_port=port if ui else None)


def sandbox(
    folder: Annotated[Path, typer.Option(help="Folder for refs and objects.")] = Path("lakefs-gc-sandbox"),
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    store: Annotated[
        str,
        typer.Option(help="Where objects go: s3://bucket/prefix or file:///folder. Default: in --folder."),
    ] = "",
) -> None:
    """Run the embedded lakeFS-compatible server. For demos and tests only."""
    require_demo_extra("sandbox")
    from lakefs_gc.cli.embedded_server import serve_sandbox  # needs the extra

    serve_sandbox(OPTIONS.output(), folder, host, port, store)
