"""The commands about marks: ``mark``, ``approve``, ``sweep``, ``run``, ``show``, ``report`` and ``history``.

``mark_reports`` loads Arrow and the lakeFS client, ``mark_runs`` also Dagster and Spark: 1 and 3 seconds. Each command
imports what it needs, so that ``--help`` takes half a second.
"""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from lakefs_gc.cli.options import OPTIONS, ApprovedBy, AsJSON, MarkId, MinAge, Only, Repository, UnsafeMinAge, scope_of
from lakefs_gc.config import parse_duration_hours
from lakefs_gc.errors import ConfigurationError, LakeFSGCError


def mark(
    repository: Repository,
    min_age: MinAge = "",
    unsafe_min_age: UnsafeMinAge = False,
    only: Only = None,
    with_forecast: Annotated[
        bool,
        typer.Option("--forecast", help="Also compute what other retention rules would free, for the report."),
    ] = False,
    json: AsJSON = False,
) -> None:
    """Decide which objects may be deleted, and write the mark. Deletes nothing."""
    from lakefs_gc.cli.early_start import start_spark_early

    out, settings, min_age_hours = OPTIONS.output(json), OPTIONS.settings(), _hours(min_age)
    start_spark_early(settings, repository)

    from lakefs_gc.cli import mark_pages, mark_reports, mark_runs

    made = mark_runs.mark(
        settings, out, repository, min_age_hours, unsafe_min_age, scope_of(only), with_forecast=with_forecast
    )
    out.result(
        mark_reports.mark_facts(made.mark),
        lambda: out.say(f"{mark_pages.text(settings, made.mark)}\n\n{made.forecast}"),
    )
    if made.incomplete is not None:
        raise made.incomplete


def approve(
    repository: Repository,
    mark_id: MarkId,
    digest: Annotated[
        str,
        typer.Option(help="Digest of the mark that you reviewed. Default on a terminal: show the mark and ask."),
    ] = "",
    by: ApprovedBy = "",
    override: Annotated[
        list[str] | None, typer.Option(help="A failed check that does not block the sweep of this mark.")
    ] = None,
    why: Annotated[str, typer.Option(help="The reason for the overrides, which is recorded.")] = "",
    only: Only = None,
    json: AsJSON = False,
) -> None:
    """Approve the sweep of a mark, or of one part of it. Where Dagster runs, a sensor then starts the sweep."""
    from lakefs_gc.cli import mark_pages, mark_runs

    out, settings, scope = OPTIONS.output(json), OPTIONS.settings(), scope_of(only)
    if not (digest and by) and not sys.stdin.isatty():
        raise ConfigurationError(
            "Cannot ask for confirmation: standard input is not a terminal. An approval names the digest of the mark "
            "and the person who reviewed it",
            remedy="pass --digest, as `mark` and `show` print it, and --by NAME",
        )
    by = by or getpass.getuser()
    if not digest:
        shown, text, _ = mark_pages.show(settings, repository, mark_id)
        out.say(text)
        objects = f"{shown.objects_of(scope)} objects{scope.words}"
        if not _confirmed(f"Approve the deletion of these {objects}, as {by}?"):
            out.result({"mark_id": mark_id, "approved": False}, lambda: out.say("Nothing was approved."))
            return
        digest = shown.digest
    facts = mark_runs.approve(settings, out, repository, mark_id, digest, by, tuple(override or ()), why, scope)

    def show_approval() -> None:
        out.say(f"mark {mark_id}{scope.words} approved by {by}, with digest {digest}")
        out.say(facts["next"])

    out.result(facts, show_approval)


def sweep(
    repository: Repository,
    mark_id: MarkId,
    digest: Annotated[
        str, typer.Option(help="Digest of the mark. Required for a mark that another installation made.")
    ] = "",
    by: ApprovedBy = "",
    only: Only = None,
    json: AsJSON = False,
) -> None:
    """Delete the objects of a mark, or of one part of it.

    Naming the mark here approves it, or the part. A second sweep continues an unfinished one. A mark that was restored,
    or is being restored, needs an approval by `approve`.
    """
    from lakefs_gc.cli.early_start import start_spark_for_sweep

    out, settings = OPTIONS.output(json), OPTIONS.settings()
    start_spark_for_sweep(settings, repository, mark_id)

    from lakefs_gc.cli import mark_runs

    swept = mark_runs.sweep(
        settings, out, repository, mark_id, digest, approved_by=by or _current_user(), only=scope_of(only)
    )
    out.result(mark_runs.sweep_facts(swept), lambda: out.show_outcomes(swept.outcomes, swept.errors))
    if swept.incomplete is not None:
        raise swept.incomplete


def run(
    repository: Repository,
    min_age: MinAge = "",
    unsafe_min_age: UnsafeMinAge = False,
    yes: Annotated[bool, typer.Option("--yes", help="Sweep without asking.")] = False,
    by: ApprovedBy = "",
    only: Only = None,
    json: AsJSON = False,
) -> None:
    """Mark, show the decision, ask, back up where the settings require it, and sweep."""
    from lakefs_gc.cli.early_start import start_spark_early

    out, settings, min_age_hours = OPTIONS.output(json), OPTIONS.settings(), _hours(min_age)
    if not yes and not sys.stdin.isatty():
        raise ConfigurationError(
            "Cannot ask for confirmation: standard input is not a terminal",
            remedy="pass --yes, or run `mark` and `sweep` separately",
        )
    start_spark_early(settings, repository)

    from lakefs_gc.cli import backup_runs, mark_pages, mark_reports, mark_runs
    from lakefs_gc.report.words import objects_of

    marked = mark_runs.mark(settings, out, repository, min_age_hours, unsafe_min_age, scope_of(only)).mark
    out.say(mark_pages.text(settings, marked))
    not_swept = {**mark_reports.mark_facts(marked), "swept": False}
    if not marked.candidates:
        out.result(not_swept, lambda: out.say("Nothing to sweep."))
        return
    if not yes and not _confirmed(f"Delete {objects_of(marked.candidates)}?"):
        out.result(not_swept, lambda: out.say("Nothing was deleted. The mark is kept."))
        return
    try:
        if settings.backup.required_before_sweep:
            backed_up = backup_runs.backup(settings, out, repository, marked.mark_id)
            if backed_up.incomplete is not None:
                out.show_errors(backed_up.facts["errors"])
                raise backed_up.incomplete
        approved_by = by or _current_user()
        swept = mark_runs.sweep(settings, out, repository, marked.mark_id, marked.digest, approved_by=approved_by)
    except LakeFSGCError:
        # The mark exists all the same, and a script needs its id.
        out.result(not_swept, lambda: None)
        raise
    facts = {
        **mark_reports.mark_facts(marked),
        **mark_runs.sweep_facts(swept),
        "swept": swept.incomplete is None,
    }
    out.result(facts, lambda: out.show_outcomes(swept.outcomes, swept.errors))
    if swept.incomplete is not None:
        raise swept.incomplete


def show(repository: Repository, mark_id: MarkId, json: AsJSON = False) -> None:
    """Show one mark: what to do next, failed checks, what becomes of the listed objects, the marked ones."""
    from lakefs_gc.cli import mark_pages

    out = OPTIONS.output(json)
    _, text, facts = mark_pages.show(OPTIONS.settings(), repository, mark_id)
    out.result(facts, lambda: out.say(text))


def report(
    repository: Repository,
    mark_id: Annotated[str, typer.Argument(metavar="MARK", help="Id of a mark. Default: the newest.")] = "",
    output: Annotated[
        Path | None, typer.Option(help="The HTML file. Default: lakefs-gc-REPOSITORY-MARK.html in this folder.")
    ] = None,
    show_it: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            show_default=False,
            help="Open the report in a browser. Default: on a terminal, without --json, --output and --list.",
        ),
    ] = None,
    objects: Annotated[
        Path | None,
        typer.Option(
            "--list",
            metavar="FILE",
            help="Also write all marked objects to this CSV file, with their paths where they are known.",
        ),
    ] = None,
    json: AsJSON = False,
) -> None:
    """Write the report of a mark, as it is now, as one HTML file that loads nothing, and open it. Deletes nothing."""
    from lakefs_gc.cli import mark_pages
    from lakefs_gc.terminal.browser import open_in_browser

    out, settings = OPTIONS.output(json), OPTIONS.settings()
    mark_id = mark_id or mark_pages.latest_mark(settings, repository)
    content = mark_pages.html(settings, repository, mark_id)
    file = output or Path(f"lakefs-gc-{repository}-{mark_id}.html")
    facts: dict[str, str | int] = {"repository": repository, "mark_id": mark_id, "report": str(file)}
    try:
        file.write_text(content, "utf-8")
        if objects:
            facts |= {"list": str(objects), "objects": mark_pages.write_list(settings, repository, mark_id, objects)}
    except OSError as error:
        raise ConfigurationError(
            f"Cannot write {error.filename}: {error.strerror}", remedy="Pass another file with --output or --list"
        ) from error
    if show_it is None:
        show_it = sys.stdout.isatty() and not (json or output or objects)
    if show_it and not open_in_browser(file):
        out.say_error(f"No browser was found on this machine. The report is in {file}")
    out.result(facts, lambda: out.say("\n".join(str(value) for value in (file, objects) if value)))


def history(
    repository: Repository,
    last: Annotated[int, typer.Option(min=0, help="List only the newest marks, so many; 0 lists all.")] = 20,
    json: AsJSON = False,
) -> None:
    """List the marks of a repository with their states, newest first."""
    from lakefs_gc.cli import mark_reports

    out = OPTIONS.output(json)
    marks = mark_reports.history(OPTIONS.settings(), repository, last + 1 if last else None)
    has_more, marks = bool(last) and len(marks) > last, marks[: last or None]

    def show() -> None:
        out.show_history(marks)
        if has_more:
            out.say(f"There are older marks. `lakefs-gc history {repository} --last 0` lists all")

    out.result({"repository": repository, "marks": marks, "has_more": has_more}, show)


def _hours(duration: str) -> float | None:
    return parse_duration_hours(duration) if duration else None


def _current_user() -> str:
    """Return the name that an approval records: the user's on a terminal; a script's user has not seen the mark."""
    return getpass.getuser() if sys.stdin.isatty() else "nobody: a script"


def _confirmed(question: str) -> bool:
    try:
        return typer.confirm(question, default=False, err=True)
    except typer.Abort:  # Ctrl-D or Ctrl-C: no answer means no
        typer.echo(err=True)
        return False
