"""The commands about backups: ``backup``, ``restore`` and ``backups``."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefs_gc.cli.options import OPTIONS, AsJSON, MarkId, Repository, named_repository


def backup(repository: Repository, mark_id: MarkId, json: AsJSON = False) -> None:
    """Copy the objects of a mark to the backup location, and verify each copy. Continues where it stopped."""
    from lakefs_gc.cli import backup_runs  # loads Dagster and Spark, three seconds

    out = OPTIONS.output(json)
    backed_up = backup_runs.backup(OPTIONS.settings(), out, repository, mark_id)
    out.result(backed_up.facts, lambda: out.show_outcomes(backed_up.facts["outcomes"], backed_up.facts["errors"]))
    if backed_up.incomplete is not None:
        raise backed_up.incomplete


def restore(
    mark_id: Annotated[str, typer.Argument(metavar="MARK", help="Id of the mark whose objects to restore.")],
    repository: Annotated[
        str | None,
        typer.Option(
            help="Its repository. Required if several repositories have a backup of this mark.",
            callback=named_repository,
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="Restore only objects whose logical path in a commit, or address, has this prefix.")
    ] = "",
    from_server: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The lakeFS server that the backup was made with, if this is another one, or has another URL now.",
        ),
    ] = "",
    json: AsJSON = False,
) -> None:
    """Copy the objects of a backup to where they were, and verify them by reading them through lakeFS."""
    from lakefs_gc.cli import backup_runs  # loads Dagster and Spark, three seconds

    out = OPTIONS.output(json)
    restored = backup_runs.restore(OPTIONS.settings(), out, mark_id, repository or "", prefix, from_server)
    facts = backup_runs.restore_facts(restored)

    def show_tables() -> None:
        out.show_outcomes(facts["outcomes"])
        out.say(
            f"read through lakeFS: {restored.read_through_lakefs}; "
            f"verified in the store, because no commit shows them: {restored.shown_by_no_commit}"
        )
        if restored.without_copy:
            out.say(f"not in the backup, because they did not exist when it was made: {restored.without_copy}")
        if restored.prefix and restored.not_requested:
            out.say(
                f"in the backup, but not restored, without the prefix: {restored.not_requested}; "
                f"of these, in no metadata file, so that their path is unknown: {restored.without_path}"
            )
        out.say(f"digest of the result: {restored.digest}, in {restored.record_url}")
        out.show_errors(restored.errors)

    out.result(facts, show_tables)
    restored.raise_if_incomplete()


def backups(
    repository: Annotated[
        str | None,
        typer.Argument(help="Name of a repository. Default: all repositories.", callback=named_repository),
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="First remove backups older than backup.keep_days.")] = False,
    json: AsJSON = False,
) -> None:
    """List the backups."""
    from lakefs_gc.cli import backup_runs  # loads Dagster and Spark, three seconds

    out = OPTIONS.output(json)
    facts = backup_runs.backups(OPTIONS.settings(), repository or "", prune=prune)

    def show_tables() -> None:
        out.show_backups(facts["backups"])
        if prune:
            out.say(f"removed: {', '.join(facts['removed']) or 'none'}")
            for kept in facts["kept"]:
                which = kept["mark_id"] or "every backup"
                out.say(f"kept past keep_days: {which} of {kept['repository']}: {kept['why']}")

    out.result(facts, show_tables)
