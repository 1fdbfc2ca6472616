"""The pages name commands, options, settings, checks and outcomes that exist, and all of them."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.backups import manifest
from lakefs_gc.engine.undo import restore
from lakefs_gc_tests.docs import settings
from lakefs_gc_tests.docs.checks_table import check_names
from lakefs_gc_tests.docs.commands import NAME, long_options, walk
from lakefs_gc_tests.docs.exit_codes import by_exit_code
from lakefs_gc_tests.docs.generate import DOCS, ROOT
from lakefs_gc_tests.docs.pages import PAGES, anchors, blocks, name_of, spans

COMMANDS = {name: set(long_options(command)) for name, command in walk()}
OF_ALL = COMMANDS[NAME] | {"--help"}
# designs.md has only what `lakefs-gc designs page` prints, and the changelog on the site is a copy.
CHECKED = [page for page in PAGES if page.name not in ("designs.md", "changelog.md", "contributing.md")]
_USAGE = "[OPTIONS] COMMAND"
_END_OF_COMMAND = {"|", ">", "&&", ";", "#", "2>", ">>"}


def called(page: Path) -> Iterator[str]:
    """Yield each use of ``lakefs-gc``, in blocks and in prose; in prose its name may be omitted."""
    for block in (*blocks(page, "sh"), *blocks(page, "text")):
        for line in block.splitlines():
            if found := re.search(rf"(?:^|[\s/(]){NAME} (.*)", line):
                yield found[1]
    for span in spans(page):
        words = span.split()
        if words[0] == NAME and len(words) > 1:
            yield " ".join(words[1:])
        elif f"{NAME} {words[0]}" in COMMANDS and "--" in span:
            yield span


def problems(use: str) -> list[str]:
    """Return what a use of ``lakefs-gc`` names that does not exist."""
    words = list(takewhile(lambda word: word not in _END_OF_COMMAND, shlex.split(use, comments=True)))
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    plain = [word for word in words if not word.startswith("-")]
    # Behind options of every command, its name may be any word.
    first = plain if use.startswith("-") else plain[:1]
    command = next((name for word in first if (name := f"{NAME} {word}") in COMMANDS), "" if plain else NAME)
    if not command:
        return [use]
    below = f"{NAME} {' '.join(plain[:2])}"
    known = COMMANDS[command] | COMMANDS.get(below, set()) | OF_ALL
    return [option for option in options if option not in known]


@pytest.mark.parametrize("page", CHECKED, ids=name_of)
def test_commands_and_their_options_exist(page: Path) -> None:
    assert [(use, wrong) for use in called(page) if use != _USAGE and (wrong := problems(use))] == []


def test_a_wrong_command_or_option_is_noticed() -> None:
    assert problems("mark my-repo --json") == []
    assert problems("--verbose mark my-repo") == []
    assert problems("designs show 5 commit-move") == []
    assert problems("mork my-repo")
    assert problems("mark my-repo --jsn")
    assert problems("mark my-repo --prune") == ["--prune"]


@pytest.mark.parametrize("page", CHECKED, ids=name_of)
def test_options_alone_exist(page: Path) -> None:
    ours = set().union(*COMMANDS.values()) | OF_ALL
    others = {"--files-from-raw", "--build-arg"}
    alone = [span.split()[0] for span in spans(page) if span.startswith("--")]
    assert [option for option in alone if option not in ours | others] == []


@pytest.mark.parametrize("page", CHECKED, ids=name_of)
def test_settings_exist(page: Path) -> None:
    known = set(settings.names())
    sections = {name.partition(".")[0] for name in known if "." in name}
    dotted = [span for span in spans(page) if re.fullmatch(r"[a-z]+(\.[a-z_]+)+", span) and span != "backup.json"]
    assert [span for span in dotted if span.partition(".")[0] in sections and span not in known] == []


@pytest.mark.parametrize("page", [page for page in CHECKED if blocks(page, "toml")], ids=name_of)
def test_examples_of_the_configuration_name_settings(page: Path) -> None:
    known = set(settings.names())
    for block in blocks(page, "toml"):
        for name, value in tomllib.loads(block).items():
            assert name in known, block
            if isinstance(value, dict) and name not in ("spark", "mounts"):
                assert [key for key in value if f"{name}.{key}" not in known] == [], block


def test_every_command_and_setting_has_a_heading() -> None:
    for page, names in (("command-line.md", [*COMMANDS][1:]), ("configuration.md", settings.names())):
        text = (DOCS / "reference" / page).read_text("utf-8")
        assert [name for name in names if f"`{name}`\n" not in text and f"`[{name}]`\n" not in text] == [], page


def test_every_check_is_explained() -> None:
    assert set(anchors(DOCS / "reference" / "checks.md")) >= set(check_names())


def test_every_outcome_is_explained() -> None:
    text = (DOCS / "reference" / "outcomes.md").read_text("utf-8")
    sections = dict(zip(("sweep", "backup", "restore"), text.split("\n## ")[1:], strict=False))
    for name, outcomes in (
        ("sweep", ledger.OUTCOMES),
        ("backup", manifest.OUTCOMES),
        ("restore", restore.OUTCOMES),
    ):
        assert re.findall(r"^\| `(\w+)` \|", sections[name], re.MULTILINE) == list(outcomes)


def test_every_exit_code_is_explained() -> None:
    text = (DOCS / "reference" / "outcomes.md").read_text("utf-8").partition("\n## Exit codes\n")[2]
    explained = {int(code) for code in re.findall(r"^\| (\d+) \| [^`]", text, re.MULTILINE)}
    assert explained == {0, 1, *by_exit_code()}


def test_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = {
        extra
        for page in PAGES
        for listed in re.findall(r"lakefs-gc\[([a-z0-9,-]+)\]", page.read_text("utf-8"))
        for extra in listed.split(",")
    }
    assert named
    assert sorted(named - extras.keys()) == []
