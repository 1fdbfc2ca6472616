"""No secret is in anything that a run writes, shows or forwards, in success and in failure."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.config import Settings, load_settings
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.recorded_run import RecordedRun, of_a_recorded_run


def _hidden(secret: str, content: bytes) -> bool:
    return secret.encode() not in content


def _contents(file: Path) -> Iterator[bytes]:
    """Yield the content of a file, and of the files packed in it."""
    content = file.read_bytes()
    yield content
    if content[:2] == b"\x1f\x8b":
        yield gzip.decompress(content)
    if content[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(file) as archive:
            yield from (archive.read(name) for name in archive.namelist())


@of_a_recorded_run
def test_the_commands_had_the_expected_exit_codes(recorded_run: RecordedRun) -> None:
    """Otherwise the other tests would have nothing to check."""
    codes = [step["exit_code"] for step in recorded_run.ended]
    assert codes[:8] == [0] * 8, recorded_run.output.decode(errors="replace")[-3000:]
    assert all(code in (2, 4) for code in codes[8:]), codes
    swept = recorded_run.ended[5]["facts"]
    assert swept["deleted"] == 2
    assert recorded_run.ended[6]["facts"]["outcomes"]["restored"]["objects"] == 2


@of_a_recorded_run
def test_no_secret_is_in_the_output(recorded_run: RecordedRun) -> None:
    assert recorded_run.output.count(b"what to do") + recorded_run.output.count(b"remedy") > 0
    assert [name for name, secret in recorded_run.secrets.items() if not _hidden(secret, recorded_run.output)] == []


@of_a_recorded_run
def test_no_secret_is_on_a_command_line(recorded_run: RecordedRun) -> None:
    lines = b"\n".join(line.replace(b"\0", b" ") for seen in recorded_run.command_lines.values() for line in seen)
    assert b"org.apache.spark.deploy.SparkSubmit" in lines
    assert b"lakefs_gc_tests.support.impatient_daemon" in lines, "what starts Python workers"
    assert [name for name, secret in recorded_run.secrets.items() if not _hidden(secret, lines)] == []


@of_a_recorded_run
def test_no_secret_is_in_a_file(recorded_run: RecordedRun) -> None:
    """Dagster's databases and storage, Spark's event log, work files, temporary files."""
    written_by_the_test = {"plan.json", "lakefs-gc.toml", ".lakectl.yaml"}
    files = [
        file
        for file in recorded_run.folder.rglob("*")
        if file.is_file()
        and file.name not in written_by_the_test
        and not file.is_relative_to(recorded_run.folder / "lake")
    ]
    kinds = {file.suffix for file in files}
    assert ".db" in kinds
    assert any(file.is_relative_to(recorded_run.folder / "events") for file in files)
    found = [
        (name, str(file.relative_to(recorded_run.folder)))
        for file in files
        for content in _contents(file)
        for name, secret in recorded_run.secrets.items()
        if not _hidden(secret, content)
    ]
    assert found == []


@of_a_recorded_run
def test_the_event_log_of_spark_contains_the_environment(recorded_run: RecordedRun) -> None:
    """The page *Environment* shows the same: properties of Spark, of the JVM and of the system."""
    events = [
        json.loads(line)
        for file in (recorded_run.folder / "events").rglob("*")
        if file.is_file() and not file.name.startswith((".", "appstatus"))
        for line in file.read_text().splitlines()
    ]
    (environment,) = [event for event in events if event["Event"] == "SparkListenerEnvironmentUpdate"]
    assert "spark.master" in environment["Spark Properties"]
    assert [
        name for name, secret in recorded_run.secrets.items() if not _hidden(secret, json.dumps(environment).encode())
    ] == []


@of_a_recorded_run
def test_no_secret_is_in_the_namespace_or_in_the_backup(
    recorded_run: RecordedRun, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in s3_server.environment.items():
        monkeypatch.setenv(variable, value)
    seen = 0
    for place in (recorded_run.namespace, recorded_run.backups):
        store = open_store(place)
        keys = [key for batch in store.list() for key in batch.column("address").to_pylist()]
        for _, content in store.read_many(keys):
            seen += 1
            assert [name for name, secret in recorded_run.secrets.items() if not _hidden(secret, content)] == []
    assert seen > 20


@pytest.mark.parametrize(
    "settings",
    [
        {"spark": {"spark.hadoop.fs.s3a.secret.key": "hidden"}},
        {"spark": {"spark.ssl.keyPassword": "hidden"}},
        {"spark": {"spark.remote": "sc://host:443/;token=hidden"}},
        {"spark": {"spark.kubernetes.authenticate.submission.oauthToken": "hidden"}},
        {"work_url": "s3://key:hidden@bucket/work"},
        {"listing": {"inventory_url": "s3://key:hidden@bucket/inventory"}},
        {"spark": {"spark.jars.repositories": "https://user:hidden@example.com/maven"}},
        {"backup": {"url": "s3://key:hidden@bucket/work"}},
        {"mounts": {"local://": "s3://key:hidden@bucket/work/"}},
    ],
    ids=str,
)
def test_settings_with_secrets_are_rejected(settings: dict[str, Any], tmp_path: Path) -> None:
    """Settings are visible in Dagster's UI, and on the command line of the JVM."""
    sections = "\n".join(
        f"{name} = {json.dumps(value)}"
        if isinstance(value, str)
        else f"[{name}]\n" + "\n".join(f"{json.dumps(key)} = {json.dumps(item)}" for key, item in value.items())
        for name, value in settings.items()
    )
    (tmp_path / "lakefs-gc.toml").write_text(sections)
    with pytest.raises(ConfigurationError, match=r"secret|credentials") as refused:
        load_settings(tmp_path / "lakefs-gc.toml")
    assert "hidden" not in str(refused.value)


def test_settings_that_only_name_secrets_are_accepted() -> None:
    Settings.model_validate(
        {
            "spark": {
                "spark.kubernetes.driver.secretKeyRef.AWS_SECRET_ACCESS_KEY": "aws:secret",
                "spark.authenticate.secret.file": "/run/secrets/spark",
                "spark.hadoop.fs.s3a.aws.credentials.provider": "org.example.Provider",
            }
        }
    )
