"""The commands.  Each calls the session, the engine or the demo, and prints what came of it.

Results go to standard output, progress and logs to standard error.  Exit codes: 0 done; 1 a fault of ours; 2 wrong use
or configuration; 3 refused by a safety rule, or a check of ``doctor`` failed: nothing was deleted, but for what a
sweep's earlier rounds recorded; 4 lakeFS or the store failed, or a file is damaged; 5 a sweep, backup or restore in
which an object failed; 130 interrupted.
"""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from lakefs_gc import __version__
from lakefs_gc.cli import undo
from lakefs_gc.cli.designs import register as register_designs
from lakefs_gc.cli.extras import require_demo_extra
from lakefs_gc.cli.job import register as register_job
from lakefs_gc.cli.packing import register as register_packing
from lakefs_gc.config import Settings, load_server_credentials, load_settings, parse_duration_hours
from lakefs_gc.errors import ConfigurationError, InterruptedRunError, LakeFSGCError
from lakefs_gc.terminal.output import Output

app = typer.Typer(
    name="lakefs-gc",
    help="Find, show and delete the objects that nothing in lakeFS refers to any more.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Repository = Annotated[str, typer.Argument(help="Name of the repository.")]
MarkId = Annotated[str, typer.Option("--mark", metavar="ID", help="Id of a mark: `history` lists them.")]
AsJSON = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
MinAge = Annotated[str, typer.Option("--min-age", metavar="36h", help="Younger objects are no candidates: 36h, 2d.")]
ApprovedBy = Annotated[
    str,
    typer.Option("--by", metavar="NAME", help="Who approves; on a terminal, by default, the user there."),
]
UnsafeMinAge = Annotated[
    bool, typer.Option("--unsafe-min-age", help="Accept a minimum age below the server's grace period.")
]


_INTERRUPTED = InterruptedRunError.exit_code


class _Options:
    """What stands before the command."""

    config: Path | None = None
    log_json = False
    verbose = False

    def settings(self) -> Settings:
        return load_settings(self.config)

    def output(self, as_json: bool = False) -> Output:
        return Output(as_json=as_json, log_json=self.log_json, verbose=self.verbose)


_options = _Options()


@app.callback(invoke_without_command=True)
def _global_options(
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: lakefs-gc.toml.")] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log JSON lines.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    _options.config, _options.log_json, _options.verbose = config, log_json, verbose


@app.command()
def mark(
    repository: Repository, min_age: MinAge = "", unsafe_min_age: UnsafeMinAge = False, json: AsJSON = False
) -> None:
    """Find what may be deleted, and write it down.  Deletes nothing."""
    from lakefs_gc.cli import reading, work

    out = _options.output(json)
    made = work.mark(_options.settings(), out, repository, _hours(min_age), unsafe_min_age)
    out.result(reading.mark_facts(made), lambda: out.show_mark(made))


@app.command()
def approve(
    repository: Repository,
    mark_id: MarkId,
    digest: Annotated[
        str, typer.Option(help="The digest that you looked at; on a terminal the mark is shown, and you are asked.")
    ] = "",
    by: ApprovedBy = "",
    override: Annotated[
        list[str] | None, typer.Option(help="A failed check that does not block the sweep of this mark.")
    ] = None,
    why: Annotated[str, typer.Option(help="The reason for the overrides, which is recorded.")] = "",
    json: AsJSON = False,
) -> None:
    """Say that a mark may be swept.  A sensor then starts the sweep, where Dagster runs."""
    from lakefs_gc.cli import reading, work

    out, settings = _options.output(json), _options.settings()
    if not (digest and by) and not sys.stdin.isatty():
        raise ConfigurationError(
            "an approval names the digest that was looked at, and who looked; nobody is there to ask",
            remedy="say --digest, as `mark` and `show` print it, and --by NAME",
        )
    by = by or getpass.getuser()
    if not digest:
        found, seen = reading.show(settings, repository, mark_id)
        out.show_mark(found)
        out.show_overview(seen)
        if not _confirmed(f"Approve the deletion of these {found.candidates} objects, as {by}?"):
            out.result({"mark_id": mark_id, "approved": False}, lambda: out.say("nothing was approved"))
            return
        digest = found.digest
    facts = work.approve(settings, out, repository, mark_id, digest, by, tuple(override or ()), why)

    def said() -> None:
        out.say(f"mark {mark_id} approved by {by}, with digest {digest}")
        out.say(facts["next"])

    out.result(facts, said)


@app.command()
def sweep(
    repository: Repository,
    mark_id: MarkId,
    digest: Annotated[
        str, typer.Option(help="Digest of the mark; needed for a mark that was made by another installation.")
    ] = "",
    by: ApprovedBy = "",
    json: AsJSON = False,
) -> None:
    """Delete what a mark says.  Naming the mark here is its approval.  Sweeping it again goes on with what is left."""
    from lakefs_gc.cli import work

    out = _options.output(json)
    swept = work.sweep(_options.settings(), out, repository, mark_id, digest, approved_by=by or _whoever_runs_this())
    out.result(work.sweep_facts(swept), lambda: out.show_outcomes(swept.outcomes, swept.errors))
    if swept.incomplete is not None:
        raise swept.incomplete


@app.command()
def run(
    repository: Repository,
    min_age: MinAge = "",
    unsafe_min_age: UnsafeMinAge = False,
    yes: Annotated[bool, typer.Option("--yes", help="Sweep without asking.")] = False,
    by: ApprovedBy = "",
    json: AsJSON = False,
) -> None:
    """Mark, show the decision, ask, back up where the settings demand it, and sweep."""
    from lakefs_gc.cli import reading, undo_work, work

    out, settings = _options.output(json), _options.settings()
    if not yes and not sys.stdin.isatty():
        raise ConfigurationError("nobody is there to ask", remedy="say --yes, or use `mark` and `sweep`")
    made = work.mark(settings, out, repository, _hours(min_age), unsafe_min_age)
    out.show_mark(made)
    if not made.candidates:
        out.result({**reading.mark_facts(made), "swept": False}, lambda: out.say("nothing to sweep"))
        return
    if not yes and not _confirmed(f"Delete these {made.candidates} objects?"):
        out.result({**reading.mark_facts(made), "swept": False}, lambda: out.say("nothing was deleted; the mark stays"))
        return
    try:
        if settings.backup.required_before_sweep:
            backed_up = undo_work.backup(settings, out, repository, made.mark_id)
            if backed_up.incomplete is not None:
                out.show_errors(backed_up.facts["errors"])
                raise backed_up.incomplete
        swept = work.sweep(settings, out, repository, made.mark_id, made.digest, approved_by=by or _whoever_runs_this())
    except LakeFSGCError:
        # The mark is there all the same.
        out.result({**reading.mark_facts(made), "swept": False}, lambda: None)
        raise
    facts = {**reading.mark_facts(made), **work.sweep_facts(swept), "swept": swept.incomplete is None}
    out.result(facts, lambda: out.show_outcomes(swept.outcomes, swept.errors))
    if swept.incomplete is not None:
        raise swept.incomplete


def _whoever_runs_this() -> str:
    """For the record of an approval: a script's own user is nobody who has looked at the mark."""
    return getpass.getuser() if sys.stdin.isatty() else "nobody: a script"


def _confirmed(question: str) -> bool:
    try:
        return typer.confirm(question, default=False, err=True)
    except typer.Abort:  # Ctrl-D, and Ctrl-C: no answer is no
        typer.echo(err=True)
        return False


@app.command()
def show(repository: Repository, mark_id: MarkId, json: AsJSON = False) -> None:
    """One mark: totals, the largest prefixes, a sample."""
    from lakefs_gc.cli import reading

    out = _options.output(json)
    found, seen = reading.show(_options.settings(), repository, mark_id)

    def tables() -> None:
        out.show_mark(found)
        out.show_overview(seen)

    out.result(reading.show_facts(found, seen), tables)


@app.command()
def history(repository: Repository, json: AsJSON = False) -> None:
    """The marks of a repository, newest first, and what became of them."""
    from lakefs_gc.cli import reading

    out = _options.output(json)
    marks = reading.history(_options.settings(), repository)
    out.result({"repository": repository, "marks": marks}, lambda: out.show_history(marks))


@app.command()
def doctor(
    repository: Annotated[
        str, typer.Argument(help="Repository to look at; without one, only the server and Java.")
    ] = "",
    json: AsJSON = False,
) -> None:
    """Check what a run needs: lakeFS, the store, permissions, clocks, versioning, grace period, Java."""
    from lakefs_gc.cli.doctor import examine

    out = _options.output(json)
    findings = examine(_options.settings(), load_server_credentials, repository)
    out.show_findings(findings)
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(3)


@app.command()
def demo(
    store: Annotated[str, typer.Option(help="Where the objects are: local, or s3 (SeaweedFS from PyPI).")] = "local",
    ui: Annotated[bool, typer.Option("--ui", help="Leave Dagster's UI open afterwards.")] = False,
    port: Annotated[int, typer.Option(help="Port of the UI.")] = 3000,
) -> None:
    """See the whole pipeline work on an embedded lakeFS-compatible server, with a repository that tells a story."""
    if store not in ("local", "s3"):
        raise ConfigurationError(f"unknown store {store!r}", remedy="pass --store local or --store s3")
    require_demo_extra("demo")
    from lakefs_gc.demo.play import play  # needs the extra; loads Dagster and Spark, two seconds

    play(_options.output(), store=store, ui_port=port if ui else None)


@app.command()
def sandbox(
    folder: Annotated[Path, typer.Option(help="Folder for its refs and objects.")] = Path("lakefs-gc-sandbox"),
    host: Annotated[str, typer.Option(help="Address to listen on; a loopback one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    store: Annotated[
        str, typer.Option(help="Place of the objects, s3://bucket/prefix or file:///folder; default: in its folder.")
    ] = "",
) -> None:
    """Run the embedded lakeFS-compatible server by hand.  For demos and tests only."""
    require_demo_extra("sandbox")
    from lakefs_gc.cli.embedded_server import serve_sandbox  # needs the extra

    serve_sandbox(_options.output(), folder, host, port, store)


undo.register(app, _options)  # backup, restore, backups


def _hours(duration: str) -> float | None:
    return parse_duration_hours(duration) if duration else None


register_designs(app, _options.output)
register_packing(app, _options.output)
register_job(app, _options.output)


def main() -> None:
    """Entry point: no traceback for what a user can cause."""
    try:
        app(standalone_mode=True)
    except InterruptedRunError as error:
        _interrupted(f"{error.message}; {error.remedy}")
    except LakeFSGCError as error:
        _options.output().fail(error)
        sys.exit(error.exit_code)
    except SystemExit as end:
        if end.code != _INTERRUPTED:  # typer makes it of Ctrl-C between the stages
            raise
        _interrupted()
    except KeyboardInterrupt:
        _interrupted()


def _interrupted(text: str = "interrupted; what was not finished can be run again") -> NoReturn:
    _options.output().say_error(text)
    sys.exit(_INTERRUPTED)
