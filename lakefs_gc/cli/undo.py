"""The commands around the undo: ``backup``, ``restore`` and ``backups``."""

from __future__ import annotations

from typing import Annotated, Protocol

import typer

from lakefs_gc.config import Settings
from lakefs_gc.terminal.output import Output

_Repository = Annotated[str, typer.Argument(help="Name of the repository.")]
_MarkId = Annotated[str, typer.Option("--mark", metavar="ID", help="Id of a mark: `history` lists them.")]
_AsJSON = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


class Options(Protocol):
    """What stands before the command."""

    def settings(self) -> Settings: ...

    def output(self, as_json: bool = False) -> Output: ...


def register(app: typer.Typer, options: Options) -> None:
    """Add the commands to the program."""

    @app.command()
    def backup(repository: _Repository, mark_id: _MarkId, json: _AsJSON = False) -> None:
        """Copy what a mark says to the place of the backups, and prove each copy.  Goes on where it stopped."""
        from lakefs_gc.cli import undo_work as work

        out = options.output(json)
        made = work.backup(options.settings(), out, repository, mark_id)
        out.result(made.facts, lambda: out.show_outcomes(made.facts["outcomes"], made.facts["errors"]))
        if made.incomplete is not None:
            raise made.incomplete

    @app.command()
    def restore(
        mark_id: Annotated[str, typer.Argument(metavar="MARK", help="Id of the mark whose sweep is to be undone.")],
        repository: Annotated[str, typer.Option(help="Its repository, if more than one has such a mark.")] = "",
        prefix: Annotated[
            str,
            typer.Option(help="Only what has this prefix: of logical paths, as a commit shows them, or of addresses."),
        ] = "",
        json: _AsJSON = False,
    ) -> None:
        """Bring back what was backed up, to where it was, and prove it by reading it through lakeFS."""
        from lakefs_gc.cli import undo_work as work

        out = options.output(json)
        result = work.restore(options.settings(), out, mark_id, repository, prefix)
        facts = work.restore_facts(result)

        def tables() -> None:
            out.show_outcomes(facts["outcomes"])
            out.say(
                f"read through lakeFS: {result.read_through_lakefs}; "
                f"proved at the store, as no commit shows them: {result.shown_by_no_commit}"
            )
            out.show_errors(result.errors)

        out.result(facts, tables)
        result.raise_if_incomplete()

    @app.command()
    def backups(
        repository: Annotated[str, typer.Argument(help="Name of a repository; without one, all.")] = "",
        prune: Annotated[bool, typer.Option("--prune", help="Remove those that are past backup.keep_days.")] = False,
        json: _AsJSON = False,
    ) -> None:
        """The backups that are there."""
        from lakefs_gc.cli import undo_work as work

        out = options.output(json)
        facts = work.backups(options.settings(), repository, prune=prune)

        def tables() -> None:
            out.show_backups(facts["backups"])
            if prune:
                out.say(f"removed: {', '.join(facts['removed']) or 'none'}")
                for kept in facts["kept"]:
                    out.say(f"kept though old: {kept['mark_id']} of {kept['repository']}: {kept['why']}")

        out.result(facts, tables)
