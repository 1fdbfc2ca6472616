"""Generate the reference of the command line from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer.main

from lakefs_gc.cli.main import app
from lakefs_gc_tests.docs.markdown import sentence, table

NAME = "lakefs-gc"


def walk() -> Iterator[tuple[str, Any]]:
    """Yield each command with its full name, the program itself first."""
    program = typer.main.get_command(app)
    yield NAME, program
    yield from _below(NAME, program)


def commands() -> str:
    """Return a section for each command: what it does, its arguments, its options."""
    sections = []
    for name, command in walk():
        heading = f"## `{name}`" if name.count(" ") <= 1 else f"### `{name}`"
        title = "## Options of every command" if name == NAME else heading
        parts = [title, _usage(name, command), "" if name == NAME else _help(command), _parameters(command)]
        sections.append("\n\n".join(part for part in parts if part))
    return "\n\n".join(sections)


def long_options(command: Any) -> Iterator[str]:
    """Yield the long names of a command's options."""
    for parameter in command.params:
        if _is_option(parameter):
            yield from (name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--"))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    for child_name, child in sorted(getattr(command, "commands", {}).items()):
        if not child.hidden:
            yield f"{name} {child_name}", child
            yield from _below(f"{name} {child_name}", child)


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")  # typer has a click of its own


def _usage(name: str, command: Any) -> str:
    arguments = [_value(p) if p.required else f"[{_value(p)}]" for p in command.params if not _is_option(p)]
    required = [f"{p.opts[0]} {_value(p)}" for p in command.params if _is_option(p) and p.required]
    below = ["COMMAND"] if getattr(command, "commands", None) else []
    return "```text\n" + " ".join([name, *arguments, *required, "[OPTIONS]", *below]) + "\n```"


def _help(command: Any) -> str:
    return "\n\n".join(sentence(paragraph) for paragraph in inspect.cleandoc(command.help or "").split("\n\n"))


def _parameters(command: Any) -> str:
    rows = [(_named(p), _default(p), sentence(p.help or "")) for p in command.params if p.name != "help"]
    return table(("argument or option", "default", "meaning"), rows) if rows else ""


def _named(parameter: Any) -> str:
    if not _is_option(parameter):
        return f"`{_value(parameter)}`"
    value = "" if parameter.is_flag else f" {_value(parameter)}"
    return ", ".join(
        f"`{name}{value if name.startswith('--') else ''}`" for name in sorted(parameter.opts, reverse=True)
    )


def _value(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper().replace("_", "-"))


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if value in (None, "", False, ()) or callable(value) else f"`{value}`"
