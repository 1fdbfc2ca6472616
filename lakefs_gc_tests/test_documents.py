"""The documents name what is there, and all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from lakefs_gc.cli.main import app

HERE = Path(__file__).parents[1]
README = (HERE / "README.md").read_text("utf-8")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/safety.md", "docs/scale.md")


def options(command: Any) -> Iterator[str]:
    """The long names of the options of a command and of those below it."""
    for parameter in command.params:
        if parameter.param_type_name == "option":  # typer has a click of its own
            yield max(parameter.opts, key=len)
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


def test_every_option_is_in_the_readme() -> None:
    found = set(options(typer.main.get_command(app)))
    assert {"--unsafe-min-age", "--log-json", "--version", "--folder"} <= found
    assert [option for option in sorted(found) if not re.search(rf"{option}\b", README)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    file = HERE / document
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text("utf-8"))
    assert [link for link in links if not (file.parent / link).exists()] == []


def test_every_safety_rule_has_modules_and_tests_that_are_there() -> None:
    text = (HERE / "docs" / "safety.md").read_text("utf-8")
    rules = re.split(r"^\*\*(\d+)\. ", text, flags=re.MULTILINE)[1:]
    assert [int(number) for number in rules[::2]] == list(range(1, 13))
    for rule in rules[1::2]:
        kept_by, _, tests = rule.partition("*Tests:*")
        for names, folder in ((kept_by.partition("*Kept by*")[2], "lakefs_gc"), (tests, "lakefs_gc_tests")):
            named = re.findall(r"`([a-z_/]+(?:\.py|\.yaml|/))`", names)
            assert named, rule
            assert [name for name in named if not (HERE / folder / name).exists()] == []
