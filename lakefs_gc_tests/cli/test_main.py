"""The command line, on a sandbox, as a script uses it."""

from __future__ import annotations

import csv
import getpass
import os
import shutil
import sys
import webbrowser
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.demo.story import REPOSITORY, Storyteller
from lakefs_gc_tests.support.commands import Run
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy, refusal


class OpenedBrowser(webbrowser.BaseBrowser):
    """A browser that notes what it opens."""

    def __init__(self) -> None:
        super().__init__("notes")
        self.opened: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.opened.append(url)
        return True


def reports_open_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    """A script never meets a browser, nor does a person who only wants a file, or has no display."""
    browser = OpenedBrowser()
    webbrowser.register("notes", None, browser, preferred=True)
    with monkeypatch.context() as changed:
        changed.setenv("DISPLAY", ":9")
        assert run("report", REPOSITORY).out == f"{file}\n"
        assert browser.opened == [], "not a terminal"
        assert run("report", REPOSITORY, "--open").exit_code == 0
        changed.setattr(sys.stdout, "isatty", lambda: True)
        run("report", REPOSITORY)
        assert browser.opened == [Path(file).resolve().as_uri()] * 2
        for options in (["--no-open"], ["--json"], ["--output", "x.html"], ["--list", "x.csv"]):
            assert run("report", REPOSITORY, *options).exit_code == 0
        assert len(browser.opened) == 2
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
            changed.delenv(name, raising=False)
        ended = run("report", REPOSITORY)
        assert ended.exit_code == 0
        assert file in ended.out
        assert "No browser was found" in ended.err
        assert len(browser.opened) == 2


def the_list_has_paths(file: Path, shown: dict[str, Any]) -> None:
    """Each expired object has the path, the last commit and the branch that the page of the mark shows."""
    with file.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == shown["candidates"]
    assert [row["address"] for row in rows] == sorted(row["address"] for row in rows)
    with_path = [row for row in rows if row["path"]]
    assert {row["reason"] for row in with_path} == {"expired"}
    assert len(with_path) == sum(folder["objects"] for folder in shown["folders"])
    by_address = {row["address"]: row for row in rows}
    for each in shown["sample"]:
        if "path" in each:
            listed = by_address[each["address"]]
            assert [listed[name] for name in ("path", "commit_id", "branch")] == [
                each[name] for name in ("path", "commit_id", "branch")
            ]
    for folder in shown["folders"]:
        of_folder = [row for row in with_path if row["path"].startswith(folder["folder"])]
        assert len(of_folder) >= folder["objects"] > 0
        assert folder["commit_id"] in {row["commit_id"] for row in of_folder}


@pytest.mark.of_ci
@pytest.mark.long(20)
def test_mark_show_sweep_history(lake: Storyteller, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    live = list(lake.live_objects())
    marked = run("mark", REPOSITORY, "--min-age", "1s", "--json")
    assert marked.exit_code == 0, marked.err
    made = marked.json()
    expected = {
        "mark_id",
        "repository",
        "location",
        "digest",
        "listed",
        "committed",
        "uncommitted",
        "candidates",
        "only",
    }
    expected |= {"candidate_bytes", "deleted_bytes", "cutoff", "failed_checks", "brakes"}
    assert set(made) == expected | {"not_lakefs", "not_lakefs_bytes", "named_at_root"}
    assert (made["not_lakefs"], made["not_lakefs_bytes"], made["named_at_root"]) == (0, 0, "")
    assert made["failed_checks"] == []
    assert made["deleted_bytes"] == "freed at once: the store keeps no versions"
    assert made["repository"] == REPOSITORY
    assert made["location"] == f"local://{REPOSITORY}/_lakefs/retention/gc/unified/{made['mark_id']}/"
    assert made["candidates"] > 0

    shown = run("show", REPOSITORY, "--mark", made["mark_id"], "--json").json()
    assert shown["digest"] == made["digest"]
    assert sum(prefix["objects"] for prefix in shown["largest_prefixes"]) == made["candidates"]
    classes = {step["name"]: step["objects"] for step in shown["funnel"] if not step["part_of_previous"]}
    assert classes.pop("listed") == made["listed"] == sum(classes.values())
    assert (classes["live"], classes["marked"]) == (made["listed"] - made["candidates"], made["candidates"])
    assert all(folder["commit_id"] and folder["expired_on"] for folder in shown["folders"])
    assert 0 < sum(folder["objects"] for folder in shown["folders"]) <= shown["reasons"]["expired"]["objects"]
    text = run("show", REPOSITORY, "--mark", made["mark_id"]).out
    assert text.startswith("Ready for approval")
    assert "safety.longest_commit_minutes" in text
    reported = run("report", REPOSITORY, "--output", "report.html", "--list", "marked.csv", "--json").json()
    assert (reported["mark_id"], reported["objects"]) == (made["mark_id"], made["candidates"])
    the_list_has_paths(Path("marked.csv"), shown)
    assert made["digest"] in Path("report.html").read_text("utf-8")
    assert run("report", REPOSITORY, "--output", "no/such/folder").exit_code == 2
    reports_open_on_a_terminal(run, monkeypatch, f"lakefs-gc-{REPOSITORY}-{made['mark_id']}.html")
    assert run("history", REPOSITORY, "--json").json()["marks"][0]["state"] == "marked"

    # Without an instance of Dagster nothing records here that the mark is the one that was made.
    refused = run("sweep", REPOSITORY, "--mark", made["mark_id"])
    assert refused.exit_code == 3
    assert f"--digest {made['digest']}" in refused.err
    assert run("sweep", REPOSITORY, "--mark", made["mark_id"], "--digest", "sha256:other").exit_code == 3
    swept = run("sweep", REPOSITORY, "--mark", made["mark_id"], "--digest", made["digest"], "--json")
    assert swept.exit_code == 0, swept.err
    outcomes = swept.json()
    assert outcomes["mark_id"] == made["mark_id"]
    assert (outcomes["deleted"], outcomes["deleted_bytes"]) == (made["candidates"], made["candidate_bytes"])
    assert (outcomes["already_gone"], outcomes["resurrected"], outcomes["failed"]) == (0, 0, 0)
    [listed] = run("history", REPOSITORY, "--json").json()["marks"]
    assert (listed["state"], listed["deleted_bytes"], listed["failed_checks"]) == ("swept", made["candidate_bytes"], [])
    assert listed["approver"] in run("history", REPOSITORY).out
    [beside] = Path("objects").rglob("lakefs-gc/report.html")
    assert "Swept: nothing to do" in beside.read_text("utf-8"), "the sweep wrote it anew"
    assert all(lake.checksum(o.ref, o.path) == o.sha256 for o in live)
    assert not (Path.cwd() / ".dagster").exists()


@pytest.mark.of_ci
@pytest.mark.long(80)
def test_the_parts_of_a_mark_are_swept_one_after_the_other(lake: Storyteller, run: Run) -> None:
    live = list(lake.live_objects())
    made = run("mark", REPOSITORY, "--min-age", "1s", "--json").json()
    named = (REPOSITORY, "--mark", made["mark_id"])
    reasons = run("show", *named, "--json").json()["reasons"]
    assert reasons["expired"]["objects"] > 0
    assert reasons["never_committed"]["objects"] > 0
    digest = ("--digest", made["digest"])
    approved = run("approve", *named, *digest, "--by", "ada", "--only", "expired", "--json")
    assert (approved.exit_code, approved.json()["only"]) == (0, "expired"), approved.err
    assert f"--mark {made['mark_id']} --only expired" in approved.json()["next"]

    def state() -> str:
        return str(run("history", REPOSITORY, "--json").json()["marks"][0]["state"])

    assert state() == "approved: only expired"
    # The approval of one part does not allow the sweep of another.
    assert run("sweep", *named, "--only", "never-committed").exit_code == 3
    for only, expected in (("expired", "swept: only expired"), ("never-committed", "swept")):
        swept = run("sweep", *named, "--only", only, *digest, "--json")
        assert swept.exit_code == 0, swept.err
        assert swept.json()["deleted"] == reasons[only.replace("-", "_")]["objects"]
        assert state() == expected
    assert all(lake.checksum(o.ref, o.path) == o.sha256 for o in live)


def test_an_approval_names_who_looked_and_says_what_is_next(
    lake: Storyteller, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without DAGSTER_HOME nothing here sweeps: the command must not leave it at "approved"."""
    made = run("mark", REPOSITORY, "--min-age", "1s", "--json").json()
    approve = ("approve", REPOSITORY, "--mark", made["mark_id"])
    digest = ("--digest", made["digest"])
    for unsaid in ((), digest, ("--by", "ada")):
        refused = run(*approve, *unsaid)
        assert (refused.exit_code, "--digest, as `mark` and `show` print it" in refused.err) == (2, True), refused.err
    assert run("history", REPOSITORY, "--json").json()["marks"][0]["state"] == "marked"

    with monkeypatch.context() as terminal:
        terminal.setattr("sys.stdin.isatty", lambda: True, raising=False)
        terminal.setattr("typer.confirm", lambda question, **_: "as ada?" not in question)
        asked = run(*approve, "--by", "ada")
        assert "Nothing was approved" in asked.out
        assert made["digest"] in asked.out, "it shows what it asks about"
        approved = run(*approve, *digest, "--json")
        assert approved.json()["approved_by"] == getpass.getuser()

    elsewhere = run(*approve, *digest, "--by", "ada")
    assert elsewhere.exit_code == 0, elsewhere.err
    for said in ("approved by ada", "DAGSTER_HOME is not set", "approvals_in_namespaces", f"{REPOSITORY} among"):
        assert said in elsewhere.out, elsewhere.out
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    assert "sweep_after_mark starts the sweep" in run(*approve, *digest, "--by", "ada", "--json").json()["next"]


@pytest.mark.of_ci
def test_min_age_below_the_grace_period_is_refused(lake: Storyteller, run: Run) -> None:
    refused = run("mark", REPOSITORY, "--min-age", "0s", "--json")
    assert (refused.exit_code, refused.out) == (3, "")
    assert "grace period" in refused.err
    assert "--unsafe-min-age" in refused.err
    assert "Traceback" not in refused.err
    assert run("mark", REPOSITORY, "--min-age", "0s", "--unsafe-min-age", "--json").exit_code == 0


def test_what_a_user_can_cause_has_no_traceback(lake: Storyteller, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {
        ("mark", "no-such-repository"): (4, "Check the name of the repository"),
        ("mark", REPOSITORY, "--min-age", "6"): (2, "Write a number and its unit"),
        ("sweep", REPOSITORY, "--mark", "ft6vc2hksdue9brs3eog"): (3, "history"),
        ("show", REPOSITORY, "--mark", "../../x"): (3, "mark"),
        ("run", REPOSITORY): (2, "--yes"),
        ("demo", "--store", "tape"): (2, "--store local"),
    }
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    for arguments, (exit_code, hint) in cases.items():
        ended = run(*arguments)
        assert ended.exit_code == exit_code, (arguments, ended)
        assert hint in ended.err, (arguments, ended)
        assert "Traceback" not in ended.err


def test_doctor_looks_at_everything(lake: Storyteller, run: Run) -> None:
    healthy = run("doctor", REPOSITORY, "--json")
    verdicts = {finding["check"]: finding["verdict"] for finding in healthy.json()["findings"]}
    assert healthy.exit_code == 0, healthy
    warned = {check for check, verdict in verdicts.items() if verdict != "ok"}
    assert warned == {"backups", "Dagster instance"}, "this machine has neither"
    assert {"Java", "lakeFS", "grace period", "retention rules", "store: write and delete", "clock"} <= set(verdicts)


def test_doctor_says_what_is_wrong(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("LAKECTL_SERVER_ENDPOINT_URL", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lakefs-gc.toml").write_text('[schedule]\ncron = "0 3 * * FOO"\n')
    ended = run("doctor")
    assert ended.exit_code == 3
    assert "LAKECTL_SERVER_ENDPOINT_URL" in ended.out
    assert "lakectl config" in ended.out
    assert "schedule.cron is '0 3 * * FOO', which Dagster does not accept" in ended.out


@pytest.mark.parametrize(
    ("version", "verdict", "exit_code"), [("0.110.1", "fail", 3), ("0.111.0", "ok", 0), ("dev", "warn", 0)]
)
def test_doctor_compares_the_version_of_the_server(
    lake: Storyteller, run: Run, monkeypatch: pytest.MonkeyPatch, version: str, verdict: str, exit_code: int
) -> None:
    with LakeFSProxy(os.environ["LAKECTL_SERVER_ENDPOINT_URL"]) as proxy:
        proxy.instead("/config", lambda _, real: real.with_json(version_config={"version": version}))
        monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", proxy.url)
        ended = run("doctor", "--json")
        [finding] = [found for found in ended.json()["findings"] if found["check"] == "lakeFS version"]
        assert (finding["verdict"], ended.exit_code) == (verdict, exit_code)
        assert "lakefs-gc needs 0.111 or newer" in finding["detail"]


def test_doctor_says_which_server_is_too_old_to_tell_its_version(
    run: Run, connect_to_lakefs: Callable[..., object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before 0.111 the server does not have the call, and answers 500."""
    monkeypatch.chdir(tmp_path)
    with LakeFSProxy("http://127.0.0.1:9") as proxy:
        proxy.fail("/config", refusal(500, "invalid API endpoint"))
        connect_to_lakefs(proxy.url)
        [finding] = [found for found in run("doctor", "--json").json()["findings"] if found["check"] == "lakeFS"]
    assert finding["verdict"] == "fail"
    assert "The oldest version that works is 0.111" in finding["remedy"]


def test_doctor_says_that_shards_make_optimized_listings_useless(lake: Storyteller, run: Run, tmp_path: Path) -> None:
    config = tmp_path / "lakefs-gc.toml"
    written = config.read_text()

    def finding(mode: str) -> tuple[str, str]:
        config.write_text(f'{written}[listing]\nmode = "{mode}"\n')
        found = run("doctor", REPOSITORY, "--json").json()["findings"]
        return next((one["verdict"], one["detail"]) for one in found if one["check"] == "optimized listings")

    assert finding("optimized")[0] == "ok"
    data = tmp_path / "objects" / REPOSITORY / "data"
    (data / "!ab" / "c" / "x").mkdir(parents=True)
    (data / "!ab" / "c" / "x" / "y").touch()
    assert finding("clean")[0] == "ok"
    assert finding("auto")[0] == finding("optimized")[0] == "warn"
    for folder in data.iterdir():
        folder.rename(folder if folder.name == "!ab" else data / f"!{folder.name}")
    verdict, detail = finding("optimized")
    assert (verdict, "the namespace is sharded" in detail, "data/!ab/" in detail) == ("fail", True, True)


def test_doctor_refuses_a_minimum_age_that_mark_would_refuse(lake: Storyteller, run: Run, tmp_path: Path) -> None:
    config = tmp_path / "lakefs-gc.toml"
    config.write_text(config.read_text().replace("[safety]", "[safety]\nmin_age_hours = 0.0001"))
    for arguments in (("doctor", "--json"), ("mark", REPOSITORY)):
        refused = run(*arguments)
        assert refused.exit_code == 3, refused
        assert "safety.allow_min_age_below_grace" in refused.out + refused.err


@pytest.mark.of_ci
def test_history_shows_a_mark_that_cannot_be_read(lake: Storyteller, run: Run, tmp_path: Path) -> None:
    made = run("mark", REPOSITORY, "--min-age", "0s", "--unsafe-min-age", "--json").json()
    manifest = tmp_path / "objects" / made["location"].removeprefix("local://") / "lakefs-gc.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"schema_version"', b'"version"'))
    listed = run("history", REPOSITORY, "--json")
    assert listed.exit_code == 0, listed.err
    [broken] = [mark for mark in listed.json()["marks"] if mark["mark_id"] == made["mark_id"]]
    assert broken["state"].startswith("unreadable: ")
    for number in range(10):
        shutil.copytree(manifest.parent.parent / made["mark_id"], manifest.parent.parent / f"{made['mark_id']}{number}")
    for last, more in (("4", True), ("10", True), ("0", False)):
        shown = run("history", REPOSITORY, "--last", last, "--json").json()
        assert (len(shown["marks"]) == int(last), shown["has_more"]) == (more, more)
        assert ("older marks" in run("history", REPOSITORY, "--last", last).out) is more


@pytest.mark.long(40)
def test_run_marks_and_sweeps_and_no_answer_is_no(lake: Storyteller, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    at_its_end = StringIO()
    monkeypatch.setattr(at_its_end, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", at_its_end)  # a terminal after Ctrl-D
    ended = run("run", REPOSITORY, "--min-age", "1s", "--json")
    assert ended.exit_code == 0, ended.err
    assert ended.json()["swept"] is False
    assert "Aborted" not in ended.err
    ended = run("run", REPOSITORY, "--min-age", "1s", "--yes", "--json")
    assert ended.exit_code == 0, ended.err
    facts = ended.json()
    assert facts["swept"] is True
    assert facts["deleted"] == facts["candidates"] > 0


def test_the_sandbox_refuses_a_host_before_it_does_anything(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run("sandbox", "--host", "0.0.0.0")
    assert (refused.exit_code, refused.out) == (2, "")
    assert "Use 127.0.0.1" in refused.err
    assert list(tmp_path.iterdir()) == []


def test_a_bad_configuration_file_names_the_setting(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakefs-gc.toml").write_text("[safety]\nmin_age_hour = 3\n")
    ended = run("mark", "lake")
    assert ended.exit_code == 2
    assert "safety.min_age_hour" in ended.err
