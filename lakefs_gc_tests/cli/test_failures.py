"""What the command line says, to people and to scripts, of a sweep in which a delete fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefs_gc_tests.support.commands import Run
from lakefs_gc_tests.support.faulty_store import StoreInS3, levelled_s3, store_in_s3
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lake_fixtures import name_server
from lakefs_gc_tests.support.repository_with_garbage import GARBAGE, with_garbage

__all__ = ["levelled_s3", "store_in_s3"]


@pytest.fixture
def repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_in_s3: StoreInS3, small_spark_config: dict[str, str]
) -> Iterator[LakeRepository]:
    """A repository with garbage, of which one object cannot be deleted."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        name_server(lake, monkeypatch)
        repository = with_garbage(lake.repository())
        spark = "\n".join(f'"{name}" = "{value}"' for name, value in small_spark_config.items())
        settings = f"[safety]\nlongest_commit_minutes = 0\n[sweep]\nretries = 0\n[spark]\n{spark}\n"
        (tmp_path / "lakefs-gc.toml").write_text(settings)
        monkeypatch.chdir(tmp_path)
        store_in_s3.refuse_to_delete(repository, "data/garbage-1")
        yield repository


@pytest.mark.of_ci
def test_a_failed_delete_is_said_before_the_command_fails(
    repository: LakeRepository, run: Run, store_in_s3: StoreInS3
) -> None:
    red = run("--log-json", "run", repository.name, "--yes", "--json")
    assert red.exit_code == 5, red
    facts = red.json()
    assert (facts["candidates"], facts["deleted"], facts["failed"], facts["swept"]) == (GARBAGE, GARBAGE - 1, 1, False)
    (error,) = facts["errors"]
    assert (error["objects"], error["for_example"]) == (1, "data/garbage-1")
    assert "AccessDenied" in error["error"]
    # With --log-json the error is a record, like all that is logged.
    records = [json.loads(line) for line in red.err.splitlines() if line.startswith("{")]
    assert "what to do" not in red.err
    assert (records[-1]["level"], records[-1]["error"]) == ("ERROR", "SweepIncompleteError")
    assert "1 of 2 objects" in records[-1]["message"]
    assert "sweep the same mark again" in records[-1]["remedy"]

    again = run("sweep", repository.name, "--mark", facts["mark_id"])
    assert again.exit_code == 5
    assert "AccessDenied" in again.out
    assert "data/garbage-1" in again.out
    store_in_s3.server.faults.clear()
    swept = run("sweep", repository.name, "--mark", facts["mark_id"], "--json")
    assert swept.exit_code == 0, swept.err
    assert (swept.json()["deleted"], swept.json()["errors"]) == (GARBAGE, [])


@pytest.mark.of_ci
def test_a_mark_is_said_whose_sweep_was_refused(repository: LakeRepository, run: Run, tmp_path: Path) -> None:
    settings = tmp_path / "lakefs-gc.toml"
    strict = "[safety]\nmax_marked_share = 0.01\nshare_counts_from_objects = 0"
    settings.write_text(settings.read_text().replace("[safety]", strict))
    refused = run("run", repository.name, "--yes", "--json")
    assert refused.exit_code == 3, refused
    facts = refused.json()
    assert (facts["candidates"], facts["swept"]) == (GARBAGE, False)
    assert {check["name"] for check in facts["failed_checks"]} == {"share_of_objects", "share_of_bytes"}
    assert {check["severity"] for check in facts["failed_checks"]} == {"ERROR"}
    # The former key, for one release.
    assert {check["name"]: check["blocks"] for check in facts["brakes"]} == dict.fromkeys(
        ("share_of_objects", "share_of_bytes"), True
    )

    who = ("approve", repository.name, "--mark", facts["mark_id"], "--digest", facts["digest"], "--by", "ada")
    blocked = run(*who)
    assert (blocked.exit_code, "--override share_of_bytes" in blocked.err) == (3, True), blocked.err
    # The last by its former name, which one release still accepts.
    override = ("--override", "share_of_objects", "--override", "share_of_bytes", "--override", "nothing_shielded")
    silent = run(*who, *override)
    assert silent.exit_code == 3
    assert "`why` in the UI" in silent.err
    approved = run(*who, *override, "--why", "a test")
    assert approved.exit_code == 0, approved.err
    approval = repository.store.read(f"_lakefs/retention/gc/unified/{facts['mark_id']}/lakefs-gc/approval.json")
    assert json.loads(approval)["approved_via"] == "command line"
    assert json.loads(approval)["overrides"].keys() == {
        "share_of_objects",
        "share_of_bytes",
        "no_object_kept_unverified",
    }
