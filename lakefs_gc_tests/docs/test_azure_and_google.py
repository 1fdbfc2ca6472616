"""The commands of the guide to Azure and Google in the emulators, with the permissions of the page."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc_tests.docs.generate import DOCS
from lakefs_gc_tests.docs.pages import blocks
from lakefs_gc_tests.support.emulators import namespace_behind_proxy
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.needed_permissions import documented, needed
from lakefs_gc_tests.support.user_environment import TIMEOUT_SECONDS, environment_of_user

_GUIDE = DOCS / "guides" / "azure-and-google.md"
_MIN_AGE_SECONDS = 2


@pytest.mark.of_ci
@pytest.mark.long(110)
@pytest.mark.parametrize("kind", ["azure", "gcs"])
def test_the_guide_runs_as_it_is_written_with_the_permissions_of_the_page(
    kind: str, tmp_path: Path, small_spark_config: dict[str, str], request: pytest.FixtureRequest
) -> None:
    with (
        namespace_behind_proxy(kind, request) as (proxy, location),
        Lake(tmp_path / "lake", location, SandboxOptions(grace_period_seconds=1)) as lake,
    ):
        repository = lake.repository("my-repo")
        live = repository.put("live")
        repository.commit()
        garbage = repository.put_stray("data/old/garbage", b"garbage")
        time.sleep(_MIN_AGE_SECONDS + 1)
        proxy.requests.clear()
        safety = f"min_age_hours = {_MIN_AGE_SECONDS / 3600}\n"

        ended = subprocess.run(
            ["sh", "-c", "set -eux\n" + "\n".join(blocks(_GUIDE, "sh"))],
            cwd=tmp_path,
            env=environment_of_user(lake, tmp_path, small_spark_config, safety, backup=False),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

        assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        asked = list(proxy.requests)
        assert "swept" in ended.stdout.splitlines()[-1], ended.stdout
        assert set(repository.store.stat_many([live, garbage])) == {live}
        assert needed(kind, asked) == documented(kind)
