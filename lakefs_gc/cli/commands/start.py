"""The commands with which an installation begins: ``init`` and ``ui``."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from lakefs_gc.cli.options import OPTIONS, AsJSON
from lakefs_gc.config import CONFIG_FILE, CONFIG_VARIABLE, load_server_credentials, load_settings
from lakefs_gc.errors import ConfigurationError, LakeFSGCError
from lakefs_gc.terminal.output import Output

Folder = Annotated[
    Path | None, typer.Argument(help="Folder of both files. Default: DAGSTER_HOME, else the working directory.")
]
_LOCAL = "local://"


def init(
    folder: Folder = None,
    repository: Annotated[
        list[str] | None, typer.Option("--repository", "-r", help="A repository to collect. Repeat it for others.")
    ] = None,
    backup: Annotated[
        str | None, typer.Option(metavar="URL", help="Where backups go: s3://bucket/prefix. Empty: none.")
    ] = None,
    mount: Annotated[
        list[str] | None,
        typer.Option(metavar="PREFIX=URL", help="Where this machine reaches namespaces: local://=file:///data/."),
    ] = None,
    cron: Annotated[str, typer.Option(help="When the schedule marks. Default: 0 3 * * *, every night.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    json: AsJSON = False,
) -> None:
    """Write lakefs-gc.toml and Dagster's dagster.yaml. On a terminal, ask for what is not given.

    The dagster.yaml allows one run of a repository at a time, marks dead runs as failed, and switches Dagster's
    telemetry off.
    """
    from lakefs_gc.cli.init_files import Answers, refuse_existing, write_files

    out, home = OPTIONS.output(json), _folder(folder)
    if not force:
        refuse_existing(home)
    mounts = dict(map(_mount, mount or ()))
    asks = sys.stdin.isatty()
    namespaces = _namespaces(out) if asks and repository is None else {}
    if asks and repository is None:
        repository = _asked_repositories(namespaces)
    used = [namespaces.get(name, "") for name in repository or ()]
    if asks and not mounts and any(namespace.startswith(_LOCAL) for namespace in used):
        url = typer.prompt(f"Folder on this machine that has the objects of {_LOCAL}", err=True)
        mounts[_LOCAL] = Path(url).expanduser().absolute().as_uri() + "/"
    if asks and backup is None:
        backup = typer.prompt("Location for backups, as s3://bucket/prefix (empty: none)", default="", err=True)
    answers = Answers(repository or (), backup or "", mounts, cron)
    settings = write_files(home, answers)
    facts = {"folder": str(home), "files": [CONFIG_FILE, "dagster.yaml"], "repositories": list(settings.repositories)}
    out.result(facts, lambda: _show_next(out, home, settings.repositories))


def ui(
    folder: Folder = None,
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 3000,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Dagster asks for no password: use a loopback address or a proxy.")
    ] = "127.0.0.1",
) -> None:
    """Open Dagster's UI on the files of `init`, with its daemon: the schedule and the sensors run. Ctrl-C ends it."""
    from lakefs_gc.config.instance import INSTANCE_FILE
    from lakefs_gc.terminal.dagster_ui import serve_dagster

    out, home = OPTIONS.output(), _folder(folder)
    if not (home / INSTANCE_FILE).exists():
        raise ConfigurationError(
            f"{home} has no {INSTANCE_FILE}. With Dagster's defaults, two runs of a repository may start together",
            remedy="run `lakefs-gc init` there, or name the folder that has it: `lakefs-gc ui FOLDER`",
        )
    config = OPTIONS.config or Path(os.environ.get(CONFIG_VARIABLE) or home / CONFIG_FILE)
    # Dagster would show an error of the settings as a stack trace.
    settings = load_settings(config)
    from lakefs_gc.pipeline.automation.cron import refuse_cron  # loads Dagster, a second

    refuse_cron(settings.schedule.cron)
    load_server_credentials()
    out.say(f"Dagster UI: http://{host}:{port} (Ctrl-C ends it)")
    out.say("   Jobs: gc_mark makes a mark, gc_approve approves one. The sensor sweep_after_mark then sweeps it.")
    environment = {"DAGSTER_HOME": str(home), CONFIG_VARIABLE: str(config.absolute())}
    exit_code = serve_dagster(environment, host, port)
    if exit_code:
        raise typer.Exit(4)


def _folder(folder: Path | None) -> Path:
    return (folder or Path(os.environ.get("DAGSTER_HOME") or Path.cwd())).expanduser().absolute()


def _mount(text: str) -> tuple[str, str]:
    prefix, equals, url = text.partition("=")
    if not equals:
        raise ConfigurationError(f"--mount {text!r} has no `=`", remedy=f"pass --mount {_LOCAL}=file:///folder/")
    return prefix, url


def _namespaces(out: Output) -> dict[str, str]:
    """Return the repositories that the server shows, with their namespaces. Without a server: none, and say why."""
    from lakefs_gc.lakefs.client import LakeFSClient  # half a second

    try:
        server = LakeFSClient(load_server_credentials())
        return {repository.name: repository.storage_namespace for repository in server.repositories()}
    except LakeFSGCError as error:
        out.say_error(f"The repositories cannot be listed: {error.message}")
        return {}


def _asked_repositories(namespaces: dict[str, str]) -> list[str]:
    if namespaces:
        typer.echo(f"Repositories on the server: {', '.join(namespaces)}", err=True)
    answer = typer.prompt("Repositories to collect, separated by commas", default="", err=True)
    return [name.strip() for name in answer.split(",") if name.strip()]


def _show_next(out: Output, home: Path, repositories: tuple[str, ...]) -> None:
    out.say(f"Wrote {CONFIG_FILE} and dagster.yaml in {home}")
    if os.environ.get("DAGSTER_HOME") != str(home):
        here = "from other folders" if home == Path.cwd() else "from every folder"
        out.say(f"To use them {here}, set: export DAGSTER_HOME={shlex.quote(str(home))}")
    out.say(f"Next: lakefs-gc doctor {repositories[0] if repositories else 'REPOSITORY'}, then lakefs-gc ui")
