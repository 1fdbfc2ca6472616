"""The arguments and options that several commands share, and the options before the command."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lakefs_gc.config import REPOSITORY_NAME, Settings, load_settings
from lakefs_gc.engine.scope import Scope
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.terminal.output import Output


def _repository(name: str) -> str:
    """Return the name of a repository, or raise ``ConfigurationError``: the server would answer that it is unknown."""
    if re.fullmatch(REPOSITORY_NAME, name):
        return name
    inside = re.fullmatch(rf"(?:lakefs://)?({REPOSITORY_NAME})(?:/.*)?", name)
    raise ConfigurationError(
        f"{name!r} is not the name of a repository",
        remedy=f"Pass the name only: {inside[1]}"
        if inside
        else "A name has 3 to 63 lower-case letters, digits and hyphens, and does not begin with a hyphen",
    )


def repository_or_none(name: str) -> str:
    """Return the name of a repository, or nothing."""
    return _repository(name) if name else ""


def named_repository(name: str | None) -> str:
    """Return the name of a repository, or nothing if it was omitted.

    Raise ``ConfigurationError`` for an empty name. A script may pass a variable that is not set, and does not mean all
    repositories.
    """
    if name == "":
        raise ConfigurationError(
            "The name of the repository is empty", remedy="Pass the name of a repository, or omit it"
        )
    return _repository(name) if name else ""


Repository = Annotated[str, typer.Argument(help="Name of the repository.", callback=_repository)]
MarkId = Annotated[str, typer.Option("--mark", metavar="ID", help="Id of a mark: `history` lists them.")]
AsJSON = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
MinAge = Annotated[
    str, typer.Option("--min-age", metavar="36h", help="Objects newer than this are not candidates: 36h, 2d.")
]
UnsafeMinAge = Annotated[
    bool,
    typer.Option(
        "--unsafe-min-age",
        help="Accept a --min-age below the server's grace period. Use it only while no client uploads.",
    ),
]
ApprovedBy = Annotated[
    str, typer.Option("--by", metavar="NAME", help="Who approves. Default on a terminal: the user who is logged in.")
]


class Part(StrEnum):
    """The part of a mark, as the command line spells it."""

    expired = "expired"
    never_committed = "never-committed"


Only = Annotated[
    Part | None,
    typer.Option(
        help="Only the objects of this part: those that commits had, all expired now, or those that were never "
        "committed. Default: the whole mark."
    ),
]


def scope_of(only: Part | None) -> Scope:
    """Return what the option ``--only`` selects."""
    return Scope[only.name] if only else Scope.all


class GlobalOptions:
    """The options before the command."""

    config: Path | None = None
    log_json = False
    verbose = False

    def settings(self) -> Settings:
        """Return the settings. Raise ``ConfigurationError`` for a file that cannot be used."""
        return load_settings(self.config)

    def output(self, as_json: bool = False) -> Output:
        """Return the output of a command, and configure logging."""
        return Output(as_json=as_json, log_json=self.log_json, verbose=self.verbose)


OPTIONS = GlobalOptions()
"""Those of this process; the command line sets them before it calls the command."""
