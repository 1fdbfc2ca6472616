"""``backup``, ``backups`` and ``restore`` on the command line, as a script uses them."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from lakefs_gc.demo.story import REPOSITORY, Storyteller
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc_tests.support.commands import Run
from lakefs_gc_tests.support.former_records import former_backup


@pytest.fixture
def place(lake: Storyteller, tmp_path: Path) -> Path:
    """A place for backups, which the configuration names and demands to be used."""
    folder = tmp_path / "place of backups"
    folder.mkdir()
    configure(tmp_path, f'url = "file://{folder}"\nrequired_before_sweep = true\n')
    return folder


def configure(folder: Path, section: str) -> None:
    file = folder / "lakefs-gc.toml"
    before = file.read_text().partition("[backup]")[0]
    file.write_text(f"{before}\n[backup]\n{section}")


@pytest.mark.long(30)
def test_back_up_sweep_restore(
    lake: Storyteller, run: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = list(lake.live_objects())
    made = run("mark", REPOSITORY, "--min-age", "1s", "--json").json()
    mark_id = made["mark_id"]
    refused = run("sweep", REPOSITORY, "--mark", mark_id, "--digest", made["digest"])
    assert refused.exit_code == 3
    assert f"lakefs-gc backup {REPOSITORY} --mark {mark_id}" in refused.err
    assert run("backups", "--json").json() == {"backups": []}
    early = run("restore", mark_id)
    assert (early.exit_code, early.out) == (3, "")
    assert "No repository has a complete backup" in early.err

    backed_up = run("backup", REPOSITORY, "--mark", mark_id, "--json")
    assert backed_up.exit_code == 0, backed_up.err
    facts = backed_up.json()
    assert facts["outcomes"]["copied"] == {"objects": made["candidates"], "size_bytes": made["candidate_bytes"]}
    assert (facts["mark_digest"], facts["pruned"]) == (made["digest"], 0)
    assert sum(facts["proofs"].values()) == made["candidates"]
    (listed,) = run("backups", REPOSITORY, "--json").json()["backups"]
    assert (listed["mark_id"], listed["objects"], listed["state"]) == (mark_id, made["candidates"], "complete")
    assert mark_id in run("backups").out

    swept = run("sweep", REPOSITORY, "--mark", mark_id, "--json")
    assert swept.exit_code == 0, swept.err
    assert swept.json()["deleted"] == made["candidates"]

    # A part, by a path, and then the rest: the numbers are of both.
    gone = min(path for commit, path in lake.addresses_in_history().values() if lake.is_gone(commit, path))
    part = run("restore", mark_id, "--prefix", gone, "--json").json()["outcomes"]["restored"]
    assert 0 < part["objects"] < made["candidates"]
    (row,) = run("history", REPOSITORY, "--json").json()["marks"]
    assert row["state"] == f"partly restored ({part['objects']} of {made['candidates']})"
    assert (row["restored"], row["restored_bytes"], row["deleted"]) == (*part.values(), made["candidates"])
    ended = run("restore", mark_id, "--json")
    assert ended.exit_code == 0, ended.err
    restored = ended.json()
    assert restored["outcomes"]["restored"]["objects"] == made["candidates"] - part["objects"]
    assert restored["read_through_lakefs"] + restored["shown_by_no_commit"] == made["candidates"]
    assert restored["read_through_lakefs"] > 0
    (row,) = run("history", REPOSITORY, "--json").json()["marks"]
    assert (row["state"], row["restored"]) == ("restored", made["candidates"])
    assert all(lake.checksum(o.ref, o.path) == o.sha256 for o in live)
    again = run("restore", mark_id, "--repository", REPOSITORY, "--prefix", "no such path")
    assert again.exit_code == 5
    assert "has the prefix" in again.err
    assert "read through lakeFS: 0" in again.out

    # A copy that is lost makes a restore red, and says so.
    victim = max((file for file in place.rglob("objects/**/*") if file.is_file()), key=os.path.getsize)
    victim.unlink()
    red = run("restore", mark_id)
    assert red.exit_code == 5
    assert "no longer has the copy" in red.out

    kept = run("backups", "--prune", "--json").json()
    assert (kept["removed"], len(kept["backups"])) == ([], 1)
    configure(tmp_path, f'url = "file://{place}"\nkeep_days = 0.00001\n')
    assert run("backups", "--prune", "--json").json()["removed"] == [], "it is kept for as long as it recorded"
    for record in ("backup.json", "began.json"):
        file = place / REPOSITORY / mark_id / record
        file.write_bytes(former_backup(file.read_bytes()))
    time.sleep(1)
    # Where the mark is not found, nobody can tell, and the backup stays.
    namespace = tmp_path / "objects" / REPOSITORY
    namespace.rename(tmp_path / "elsewhere")
    (kept,) = run("backups", "--prune", "--json").json()["kept"]
    assert (kept["repository"], kept["mark_id"]) == (REPOSITORY, mark_id)
    assert f"kept past keep_days: {mark_id} of {REPOSITORY}: " in " ".join(run("backups", "--prune").out.split())
    (tmp_path / "elsewhere").rename(namespace)
    # Nor does a machine whose clock is ahead prune anything.
    with monkeypatch.context() as patched:
        patched.setattr("lakefs_gc.cli.backup_runs.utc_now", lambda: utc_now() + timedelta(days=1))
        ahead = run("backups", "--prune", "--json")
    assert ahead.exit_code == 3, ahead.err
    assert "86400 s apart" in ahead.err
    assert any(place.rglob("backup.json"))
    assert run("backups", "--prune", "--json").json() == {"backups": [], "removed": [mark_id], "kept": []}
    assert [file.name for file in place.iterdir()] == ["lakefs-gc-backups.txt"]


@pytest.mark.of_ci
def test_a_copy_that_fails_is_said_before_the_command_fails(
    lake: Storyteller, run: Run, place: Path, tmp_path: Path
) -> None:
    made = run("mark", REPOSITORY, "--min-age", "1s", "--json").json()
    text = tmp_path / "objects" / made["location"].removeprefix("local://") / "deleted.text"
    address = next(file for file in sorted(text.iterdir())).read_text().splitlines()[0]
    # A folder where a copy has to be: that one object cannot be copied.
    (place / REPOSITORY / made["mark_id"] / "objects" / address / "in-the-way").mkdir(parents=True)
    red = run("backup", REPOSITORY, "--mark", made["mark_id"], "--json")
    assert red.exit_code == 5, red
    facts = red.json()
    assert facts["mark_digest"] == made["digest"]
    assert facts["outcomes"]["failed"]["objects"] == 1
    assert facts["outcomes"]["copied"]["objects"] == made["candidates"] - 1 == sum(facts["proofs"].values())
    assert [error["for_example"] for error in facts["errors"]] == [address]
    shown = run("backup", REPOSITORY, "--mark", made["mark_id"])
    assert shown.exit_code == 5
    assert address in shown.out


@pytest.mark.of_ci
def test_what_the_backup_does_not_hold_is_kept_and_counted(
    lake: Storyteller, run: Run, place: Path, tmp_path: Path
) -> None:
    made = run("mark", REPOSITORY, "--min-age", "1s", "--json").json()
    text = tmp_path / "objects" / made["location"].removeprefix("local://") / "deleted.text"
    address = next(file for file in sorted(text.iterdir())).read_text().splitlines()[0]
    victim = tmp_path / "objects" / REPOSITORY / address
    victim.rename(tmp_path / "elsewhere")
    backed_up = run("backup", REPOSITORY, "--mark", made["mark_id"], "--json").json()
    assert backed_up["outcomes"]["already_gone"]["objects"] == 1
    (tmp_path / "elsewhere").rename(victim)  # as old as it was
    swept = run("sweep", REPOSITORY, "--mark", made["mark_id"], "--digest", made["digest"], "--json")
    assert swept.exit_code == 0, swept.err
    assert swept.json()["not_backed_up"] == 1
    assert swept.json()["deleted"] == made["candidates"] - 1
    assert victim.exists()


@pytest.mark.of_ci
def test_run_backs_up_what_it_must(lake: Storyteller, run: Run, place: Path) -> None:
    ended = run("run", REPOSITORY, "--min-age", "1s", "--yes", "--json")
    assert ended.exit_code == 0, ended.err
    facts = ended.json()
    (listed,) = run("backups", "--json").json()["backups"]
    assert (listed["mark_id"], listed["objects"]) == (facts["mark_id"], facts["deleted"])
    assert any(place.rglob("objects/data/*"))


def test_repositories_without_a_name_or_a_backup(lake: Storyteller, run: Run, place: Path) -> None:
    """A script may pass an empty variable, or a wrong name."""
    mark_id = "ft6vc2hksdue9brs3eog"
    commands = {"backups": ["backups", "{}", "--prune"], "restore": ["restore", mark_id, "--repository", "{}"]}
    for name, hint in (("", "name of the repository is empty"), ("Lake/main", "is not the name of a repository")):
        for command in commands.values():
            ended = run(*(name if part == "{}" else part for part in command))
            assert (ended.exit_code, ended.out) == (2, ""), command
            assert hint in ended.err
    restored = run("restore", mark_id, "--repository", "no-such-lake")
    assert (restored.exit_code, restored.out) == (3, "")
    assert "Repository no-such-lake has no backup in" in restored.err
    for options in ([], ["--prune"]):
        listed = run("backups", "no-such-lake", "--json", *options)
        assert (listed.exit_code, listed.json()["backups"]) == (0, [])
        assert "repository no-such-lake has no backup in" in listed.err
    assert "has no backup" not in run("backups").err


def test_places_that_are_refused(lake: Storyteller, run: Run, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    cases = {
        "": (2, "Set backup.url"),
        f'url = "file://{objects}/{REPOSITORY}/backups"\n': (3, "overlaps with the namespace"),
        f'url = "file://{tmp_path}/none"\n': (4, "mount its disk"),
        'url = "tape://x"\n': (2, "does not begin with file:/// or s3://"),
    }
    for section, (exit_code, hint) in cases.items():
        configure(tmp_path, section)
        ended = run("backup", REPOSITORY, "--mark", "ft6vc2hksdue9brs3eog")
        assert ended.exit_code == exit_code, (section, ended)
        assert hint in ended.err.replace("\n", " "), (section, ended)
        assert "Traceback" not in ended.err


def test_doctor_looks_at_the_place(lake: Storyteller, run: Run, place: Path, tmp_path: Path) -> None:
    def finding() -> dict[str, str]:
        findings = run("doctor", REPOSITORY, "--json").json()["findings"]
        (of_backups,) = [each for each in findings if each["check"] == "backups"]
        return dict(of_backups)

    def found() -> dict[str, str]:
        return {name: finding()[name] for name in ("verdict", "detail")}

    assert found()["verdict"] == "ok"
    assert "required before a sweep" in found()["detail"]
    assert list(place.iterdir()) == [], "the probe is gone"
    place.rmdir()
    assert found()["verdict"] == "fail"
    configure(tmp_path, "required_before_sweep = true\n")
    assert found() == {"verdict": "fail", "detail": "No backup location is configured"}
    configure(tmp_path, "")
    warning = finding()
    assert warning["verdict"] == "warn"
    assert "backup.url is not set, so objects that a sweep deletes cannot be restored" in warning["detail"]
    assert "required_before_sweep = true" in warning["remedy"]
