"""The demo, played as a stranger plays it.  It fails by itself when what it claims does not hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.sandbox.azurite import azurite_program
from lakefs_gc.sandbox.fake_gcs import fake_gcs_program
from lakefs_gc.sandbox.seaweedfs import weed_program
from lakefs_gc_tests.install_emulators import AZURITE, FAKE_GCS, skip_without

_TIMEOUT_SECONDS = 600

pytestmark = pytest.mark.long(210)


@pytest.mark.of_ci  # the first command of the README plays it
@pytest.mark.parametrize("store", ["s3", "local", "azure", "gcs"])
def test_plays_to_the_end_with_no_java_on_the_path(store: str, tmp_path: Path) -> None:
    if store != "local":
        try:
            {"s3": weed_program, "azure": azurite_program, "gcs": fake_gcs_program}[store]()
        except ConfigurationError as error:
            if store == "s3":
                pytest.skip(error.message)
            skip_without(error, {"azure": AZURITE, "gcs": FAKE_GCS}[store])
    java = [
        name
        for name in os.environ
        if name.startswith(("JAVA", "DAGSTER", "LAKEFS_GC", "AWS", "AZURE", "LAKECTL", "STORAGE"))
    ]
    environment = {name: value for name, value in os.environ.items() if name not in java}
    environment["PATH"] = _path_without_java(tmp_path)
    if store == "azure":
        environment["PATH"] += "".join(f":{Path(program).parent}" for program in azurite_program()[1:])
    if store == "gcs":
        environment["PATH"] += f":{Path(fake_gcs_program()).parent}"
    played = subprocess.run(
        [sys.executable, "-m", "lakefs_gc", "demo", "--store", store],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    assert "✗" not in played.stdout
    assert played.stdout.count("✓") == 10
    assert "Refused: The sweep of mark" in played.stdout
    assert "computing" not in played.stdout + played.stderr, "lines of the engine"
    assert len(played.stdout.splitlines()) < 60, "one page"
    assert list(tmp_path.glob("*/*.parquet")) == []


def _path_without_java(folder: Path) -> str:
    """A PATH with every program of this machine but Java's."""
    programs = folder / "programs"
    programs.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            link = programs / program.name
            # a machine has links that lead nowhere, and /bin may be /usr/bin
            if program.exists() and not program.name.startswith("j") and not link.is_symlink():
                link.symlink_to(program)
    return str(programs)
