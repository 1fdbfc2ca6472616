"""The commands ``explain`` and ``prove-erased``, in a repository that no run has collected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefs_gc_tests.support.commands import Run
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lake_fixtures import name_server


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LakeRepository]:
    with Lake(tmp_path / "lake") as lake:
        name_server(lake, monkeypatch)
        monkeypatch.chdir(tmp_path)
        (tmp_path / "lakefs-gc.toml").write_text(f'[mounts]\n"local://" = "{lake.location.folder_url}"\n')
        yield lake.repository()


def test_explain(repository: LakeRepository, run: Run, tmp_path: Path) -> None:
    key = repository.put("a/b")
    commit = repository.commit(age_days=3)
    told = run("explain", "lake", key, "lakefs://lake/main/nothing")
    assert told.exit_code == 0
    assert f"head of branch `main`, commit {commit[:12]}" in told.out
    assert "until: never: head of branch `main`, no commit for 3 days" in told.out
    assert "not shown" in told.out
    assert "NOT looked at: other repositories" in told.out

    (tmp_path / "keys").write_text(f"{key}\n\n{key}\n")
    objects = run("explain", "lake", "--file", "keys", "--json").json()["objects"]
    assert [(each["state"], each["kept_by"][0]["by"]) for each in objects] == [("kept", "head")] * 2
    assert objects[0]["paths"][0]["first"]["id"] == commit


def test_wrong_use(repository: LakeRepository, run: Run) -> None:
    assert run("explain", "lake").exit_code == 2
    assert run("explain", "lake", "--file", "no-such-file").exit_code == 2
    assert run("explain", "lake", "s3://elsewhere/x").exit_code == 2
    assert run("explain", "no-such-repository", "x").exit_code == 4
    assert run("prove-erased", "lake", "lakefs://lake/main/x").exit_code == 2


def test_the_exit_code_says_whether_all_is_erased(repository: LakeRepository, run: Run, tmp_path: Path) -> None:
    repository.put("live")
    key = repository.put("a/b")
    repository.commit()
    remains = run("prove-erased", "lake", "a/", "--no-backups")
    assert remains.exit_code == 6
    assert "head of branch `main`" in remains.out
    assert "error: 1 of 1 objects remain" in remains.err
    repository.store.delete_many([key])
    unknown = run("prove-erased", "lake", "a/b")
    assert unknown.exit_code == 7
    assert "no backup location is configured" in unknown.err
    erased = run("prove-erased", "lake", "a/b", "--no-backups", "--html", "page.html", "--json")
    assert erased.exit_code == 0
    assert erased.json()["verdict"] == "erased"
    assert erased.json()["digest"] in (tmp_path / "page.html").read_text("utf-8")
