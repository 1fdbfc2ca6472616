"""The commands about single objects: ``explain`` and ``prove-erased``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lakefs_gc.cli.options import OPTIONS, AsJSON, Repository
from lakefs_gc.errors import ConfigurationError


def explain(
    repository: Repository,
    addresses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ADDRESS]...",
            help="A physical address, relative to the namespace or whole, or lakefs://REPO/REF/PATH.",
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Read more addresses from this file, one a line; - reads stdin.")
    ] = None,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough", help="Look at everything that was staged since the last run. Otherwise only if it is quick."
        ),
    ] = False,
    json: AsJSON = False,
) -> None:
    """Say why objects are kept, and until when, or why they are garbage, or which sweep deleted them."""
    from lakefs_gc.cli.explanations import explanation_lines, looks, sources_of  # loads Arrow and the lakeFS client
    from lakefs_gc.engine.explain.answers import as_json
    from lakefs_gc.engine.explain.explain import explain as explained

    out, words = OPTIONS.output(json), [*(addresses or []), *_lines(file)]
    if not words:
        raise ConfigurationError("No object to explain", remedy="Pass an address, lakefs://REPO/REF/PATH, or --file")
    with out.progress(f"reading the commits of {repository}"):
        answers = explained(sources_of(OPTIONS.settings(), repository), words, thorough=thorough)

    def show() -> None:
        for answer in answers:
            for line in explanation_lines(answer):
                out.say(line)
        for line in looks(answers[0].looked_at, answers[0].not_looked_at):
            out.say(line)

    out.result({"repository": repository, "objects": as_json(answers)}, show)


def prove_erased(
    repository: Repository,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="A path in the repository. One that ends in / is a prefix.")
    ],
    html: Annotated[Path | None, typer.Option(help="Also write the report to this file, as one HTML page.")] = None,
    no_backups: Annotated[
        bool, typer.Option("--no-backups", help="State that no backups exist. The report records it.")
    ] = False,
    json: AsJSON = False,
) -> None:
    """Prove that every object that was ever at these paths is erased, with all its copies.

    Exit code 0: all is gone. 6: something remains. 7: something could not be looked at.
    """
    from lakefs_gc.cli.explanations import proof_lines, sources_of  # loads Arrow and the lakeFS client
    from lakefs_gc.engine.explain.erasure import prove_erased as proved
    from lakefs_gc.report.erasure_page import erasure_page

    out = OPTIONS.output(json)
    with out.progress(f"reading the commits of {repository}"):
        proof = proved(sources_of(OPTIONS.settings(), repository), paths, no_backups=no_backups)
    if html is not None:
        html.write_text(erasure_page(proof), "utf-8")

    def show() -> None:
        for line in proof_lines(proof):
            out.say(line)

    out.result(proof.content(), show)
    proof.raise_unless_erased()


def _lines(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}", remedy="Correct --file") from None
    return [line for line in text.splitlines() if line.strip()]
