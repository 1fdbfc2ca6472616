"""``init`` and ``ui``: the files that they write and read, and what they refuse."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance

from lakefs_gc.config import Settings, load_settings
from lakefs_gc.pipeline.instances import configured_instance, traits
from lakefs_gc_tests.support.commands import Run
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lake_fixtures import lake_of_environment

__all__ = ["lake_of_environment"]

UI_SECONDS = 120


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is empty. Standard input is not a terminal."""
    folder = tmp_path / "home of a user"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    return folder


def test_init_writes_what_the_other_commands_read(run: Run, home: Path, tmp_path: Path) -> None:
    options = ("--backup", "s3://backups/gc", "--mount", "local://=file:///data/", "--cron", "30 2 * * *")
    ended = run("init", "-r", "lake", "-r", "pond", *options)
    assert ended.exit_code == 0, ended.err
    assert sorted(file.name for file in home.iterdir()) == ["dagster.yaml", "lakefs-gc.toml"]
    assert "lakefs-gc doctor lake" in ended.out
    written = load_settings()
    assert written.repositories == ("lake", "pond")
    assert (written.backup.url, written.backup.required_before_sweep) == ("s3://backups/gc", True)
    assert (written.mounts, written.schedule.cron) == ({"local://": "file:///data/"}, "30 2 * * *")
    # The same workspace in every working directory, with DAGSTER_HOME or without.
    assert written.work_url == f"file://{home}/work"
    untouched = {"repositories", "backup", "mounts", "schedule", "work_url"}
    assert written.model_dump(exclude=untouched) == Settings().model_dump(exclude=untouched)
    with configured_instance() as instance:
        assert isinstance(instance, DagsterInstance)
        assert [trait for trait in traits(instance) if trait.remedy] == []
        instance.add_dynamic_partitions("gc_runs", ["lake/first"])
    assert {file.name for file in home.iterdir()} >= {"schedules", "dagster.yaml"}, "Dagster's files are in the folder"


def test_init_overwrites_only_when_told(run: Run, home: Path) -> None:
    (home / "dagster.yaml").write_text("telemetry: {enabled: true}\n")
    refused = run("init", "-r", "lake")
    assert (refused.exit_code, "already contains dagster.yaml" in refused.err, "--force" in refused.err) == (
        2,
        True,
        True,
    )
    assert [file.name for file in home.iterdir()] == ["dagster.yaml"]
    assert run("init", "-r", "lake", "--force", "--json").json()["repositories"] == ["lake"]
    assert "enabled: true}" not in (home / "dagster.yaml").read_text()
    assert run("init", str(home / "new"), "--json").json()["folder"] == str(home / "new")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-r", "No Name"), "'No Name' is not the name of a repository"),
        (("--cron", "61 3 * * *"), "the minute is 61, and must be from 0 to 59"),
        (("--cron", "3 * * *"), "has 4 fields instead of 5"),
        (("--cron", "0 3 * * FOO"), "schedule.cron is '0 3 * * FOO', which Dagster does not accept"),
        (("--cron", "0 3 31 2 *"), "which Dagster does not accept"),
        (("--backup", "backups"), "backup.url"),
        (("--mount", "local://"), "has no `=`"),
    ],
)
def test_init_refuses_an_invalid_answer_before_it_writes(
    run: Run, home: Path, options: tuple[str, ...], message: str
) -> None:
    refused = run("init", *options)
    assert (refused.exit_code, message in refused.err) == (2, True), refused.err
    assert list(home.iterdir()) == []


def test_init_asks_on_a_terminal(lake: Lake, run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lake", "pond"):
        lake.repository(name)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    answers = {"Repositories": "lake, pond", "Folder on this machine": lake.location.url, "Location for backups": ""}
    questions: list[str] = []

    def answer(question: str, **_: object) -> str:
        questions.append(question)
        return next(text for start, text in answers.items() if question.startswith(start))

    monkeypatch.setattr("typer.prompt", answer)
    answers["Folder on this machine"] = lake.location.url.removeprefix("file://")
    ended = run("init")
    assert ended.exit_code == 0, ended.err
    assert "Repositories on the server: lake, pond" in ended.err
    assert len(questions) == 3
    settings = load_settings()
    assert (settings.repositories, settings.backup.url) == (("lake", "pond"), "")
    assert settings.reach("local://lake/").url == lake.location.folder_url + "lake/"
    assert run("init", "--force", "-r", "pond", "--backup", "").exit_code == 0
    assert len(questions) == 3, "what is given is not asked"


def test_ui_refuses_what_dagster_would_answer_with_a_stack_trace(lake: Lake, run: Run, home: Path) -> None:
    refused = run("ui")
    assert (refused.exit_code, "run `lakefs-gc init` there" in refused.err) == (2, True), refused.err
    run("init", "-r", "lake")
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        refused = run("ui", "--port", str(used.getsockname()[1]))
        assert (refused.exit_code, "pass --port" in refused.err) == (2, True), refused.err
    (home / "lakefs-gc.toml").write_text('[schedule]\ncron = "every night"\n')
    refused = run("ui", "--port", "0")
    assert (refused.exit_code, "has 2 fields instead of 5" in refused.err) == (2, True), refused.err
    (home / "lakefs-gc.toml").write_text('[schedule]\ncron = "0 3 * * FOO"\n')
    refused = run("ui", "--port", "0")
    assert (refused.exit_code, "'0 3 * * FOO', which Dagster does not" in refused.err) == (2, True), refused.err


@pytest.mark.of_ci
@pytest.mark.long(60)
def test_ui_opens_dagster_on_the_files_without_telemetry(lake: Lake, home: Path) -> None:
    home = home / "gc"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "lakefs_gc"]
    subprocess.run([*command, "init", str(home), "-r", "lake"], check=True, stdin=subprocess.DEVNULL)
    with (home / "ui.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "ui", str(home), "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            query = "{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus } } } instance { id } }"
            assert _answer(port, query)["workspaceOrError"]["locationEntries"] == [
                {"name": "lakefs_gc", "loadStatus": "LOADED"}
            ]
        finally:
            process.terminate()
            process.wait(180)
            assert _has_ended(process.pid), "Dagster must not outlive the command"
    printed = (home / "ui.log").read_text()
    assert f"http://127.0.0.1:{port}" in printed
    assert "gc_approve" in printed
    assert "telemetry" not in printed.lower(), printed
    assert "Traceback" not in printed, printed
    assert (home / "schedules").is_dir()
    assert not (home.parent / ".dagster").exists()


def _has_ended(group: int) -> bool:
    """Return whether all processes of a group end within some seconds. Ends them otherwise."""
    for _ in range(60):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.5)
    os.killpg(group, signal.SIGKILL)
    return False


def _answer(port: int, query: str) -> dict[str, Any]:
    """Return the answer of the UI as soon as it has loaded the code location."""
    until = time.monotonic() + UI_SECONDS
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql",
        json.dumps({"query": query}).encode(),
        {"Content-Type": "application/json"},
    )
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return dict(json.load(answer)["data"])
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("lakefs://lake/main/path", "Pass the name only: lake"),
        ("lake/main", "Pass the name only: lake"),
        ("My Lake", "A name has 3 to 63 lower-case letters"),
    ],
)
@pytest.mark.parametrize("command", [("mark",), ("doctor",), ("show", "--mark", "x"), ("history",)])
def test_a_name_that_is_none(run: Run, command: tuple[str, ...], name: str, remedy: str) -> None:
    ended = run(command[0], name, *command[1:])
    assert (ended.exit_code, f"'{name}' is not the name of a repository" in ended.err) == (2, True), ended.err
    assert remedy in ended.err


def test_a_closed_pipe_is_no_traceback() -> None:
    code = "import sys; sys.argv = ['lakefs-gc', '--help']; from lakefs_gc.cli import main\n"
    code += "from lakefs_gc.terminal.output import Output\n"
    for write in ("main()", "main.__globals__['app'] = lambda **_: [print('x' * 100_000) for _ in range(9)]; main()"):
        reader, writer = os.pipe()
        os.close(reader)
        ended = subprocess.run([sys.executable, "-c", code + write], stdout=writer, stderr=subprocess.PIPE, check=False)
        os.close(writer)
        assert ended.returncode != 0
        assert ended.stderr.decode().strip() == "", ended.stderr
