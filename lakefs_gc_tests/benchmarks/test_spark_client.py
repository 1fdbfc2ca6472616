"""The comparison with lakeFS's client cannot be fooled: other marks, incomplete sweeps and failed runs end it.

The collectors here are stand-ins, which write and sweep marks in a local folder.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lakefs_gc.config import ServerCredentials
from lakefs_gc.errors import ConfigurationError, MarkError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks import __main__ as command
from lakefs_gc_tests.benchmarks import spark_client
from lakefs_gc_tests.benchmarks.compared_collectors import (
    CLIENT_CLASS,
    CollectorFailedError,
    Run,
    SparkClient,
    mark_ids,
    marked_addresses,
    properties_text,
)
from lakefs_gc_tests.benchmarks.spark_client import Written, in_turns, median_ratio
from lakefs_gc_tests.support.client_marks import write_client_mark

GARBAGE = ["data/s/a", "data/s/b", "data/s/c"]
SERVER = ServerCredentials(endpoint_url="http://127.0.0.1:1", access_key_id="key", secret_access_key="very secret")


class StandIn:
    """A collector that marks ``garbage`` and sweeps ``sweeps``, in ``seconds``. ``log`` has its calls."""

    def __init__(
        self, name: str, store: ObjectStore, log: list[str], seconds: Sequence[float], garbage: list[str] = GARBAGE
    ) -> None:
        self.name, self.store, self.log, self.seconds = name, store, log, iter(seconds)
        self.garbage = self.sweeps = garbage

    def mark(self, repository: str, store: ObjectStore) -> Run:
        self.log.append(f"{self.name} marks")
        mark_id = f"{self.name}-{len(self.log)}"
        write_mark(store, mark_id, self.garbage)
        return Run(next(self.seconds), 1.0, mark_id)

    def sweep(self, repository: str, mark_id: str) -> Run:
        self.log.append(f"{self.name} sweeps")
        assert mark_id.startswith(self.name), "each sweeps its own mark"
        assert set(self.store.stat_many(GARBAGE)) == set(GARBAGE), "the other's sweep was undone"
        self.store.delete_many(self.sweeps)
        return Run(next(self.seconds), 1.0, mark_id)


def write_mark(store: ObjectStore, mark_id: str, addresses: list[str], **fields: object) -> None:
    write_client_mark(store, f"_lakefs/retention/gc/unified/{mark_id}/", addresses, **fields)  # type: ignore[arg-type]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    monkeypatch.setattr(spark_client, "_SETTLE_SECONDS", 0)
    store = open_store(StoreLocation((tmp_path / "namespace").as_uri()))
    for key in GARBAGE:
        store.put(key, key.encode())
    return Written("repository", len(GARBAGE), store)


def test_the_collectors_take_turns_and_the_ratio_is_the_median_of_the_pairs(written: Written) -> None:
    log: list[str] = []
    client = StandIn("client", written.store, log, [10, 30, 12, 30, 90, 30])
    ours = iter(StandIn("ours", written.store, log, seconds) for seconds in ([5, 1, 10], [3, 1, 10], [30, 2, 10]))
    cases = list(in_turns(written, client, lambda: next(ours), pairs=3, sweep=True, label="small"))
    first, second = ["client", "ours"], ["ours", "client"]
    expected = []
    for order in (first, second, first):
        expected += [*(f"{name} marks" for name in order), "ours marks", "ours sweeps", "client sweeps"]
    assert log == expected
    assert [(case.name, case.baseline, case.figures["wall_s"], case.ratio) for case in cases] == [
        ("small: lakeFS's client, mark", True, 12, None),
        ("small: ours, mark", False, 5, 3),  # of 10/5, 12/3, 90/30
        ("small: ours, mark again, ranges in the cache", False, 1, 12),  # of 10/1, 12/1, 90/2
        ("small: lakeFS's client, sweep", True, 30, None),
        ("small: ours, sweep", False, 10, 3),
    ]
    assert cases[1].figures["each_s"] == "5.0, 3.0, 30.0"
    assert all(written.store.read(key) == key.encode() for key in GARBAGE)


def test_pairs_of_different_numbers_have_no_ratio() -> None:
    with pytest.raises(ValueError, match="zip"):
        median_ratio([Run(1, 1, "")], [])


def collectors_that(written: Written, change: Callable[[StandIn], None]) -> list[object]:
    """Compare the client with a collector of ours after ``change``."""
    log: list[str] = []
    ours = StandIn("ours", written.store, log, [1, 1, 1])
    change(ours)
    client = StandIn("client", written.store, log, [1, 1])
    return list(in_turns(written, client, lambda: ours, pairs=1, sweep=True, label="small"))


@pytest.mark.parametrize("marked", [GARBAGE[:2], [*GARBAGE, "data/s/d"], [*GARBAGE[:2], "data/s/d"], []])
def test_marks_that_differ_end_the_comparison(written: Written, marked: list[str]) -> None:
    with pytest.raises(CollectorFailedError, match="differ in"):
        collectors_that(written, lambda ours: setattr(ours, "garbage", marked))


def test_equal_marks_without_all_garbage_end_the_comparison(written: Written) -> None:
    written.garbage += 1
    with pytest.raises(CollectorFailedError, match="3 objects were marked instead of 4"):
        collectors_that(written, lambda ours: None)


def test_an_incomplete_sweep_ends_the_comparison_and_the_objects_are_put_back(written: Written) -> None:
    with pytest.raises(CollectorFailedError, match="a sweep left 1 objects"):
        collectors_that(written, lambda ours: setattr(ours, "sweeps", GARBAGE[1:]))
    assert set(written.store.stat_many(GARBAGE)) == set(GARBAGE)


def test_a_mark_is_read_only_if_it_agrees_with_its_summary(written: Written) -> None:
    write_mark(written.store, "good", GARBAGE)
    assert marked_addresses(written.store, "good") == set(GARBAGE)
    write_mark(written.store, "empty", [])
    assert marked_addresses(written.store, "empty") == set()
    write_mark(written.store, "failed", GARBAGE, success=False)
    write_mark(written.store, "short", GARBAGE, said=4)
    write_mark(written.store, "double", [*GARBAGE, GARBAGE[0]])
    for mark_id in ("failed", "short", "double"):
        with pytest.raises(MarkError, match=mark_id):
            marked_addresses(written.store, mark_id)
    assert mark_ids(written.store) == {"good", "empty", "failed", "short", "double"}


SPARK_SUBMIT = """\
#!/bin/sh
echo "$@" > "$OUT/arguments"
cp "$2" "$OUT/properties"
mkdir -p "$MARKS/new-mark"
echo "the reason" >&2
exit "${EXIT:-0}"
"""


@pytest.fixture
def client(tmp_path: Path, written: Written, monkeypatch: pytest.MonkeyPatch) -> SparkClient:
    """lakeFS's client with a stand-in for spark-submit, which only makes the folder of a mark."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another\\secret")
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("MARKS", str(tmp_path / "namespace/_lakefs/retention/gc/unified"))
    program = tmp_path / "spark/bin/spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(SPARK_SUBMIT)
    program.chmod(0o755)
    further = tmp_path / "further.jar"
    jar = client_jar(tmp_path / "client.jar")
    return SparkClient(
        tmp_path / "client", SERVER, jar=jar, spark_home=tmp_path / "spark", jars=[further], partitions=4
    )


def client_jar(file: Path) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{CLIENT_CLASS.replace('.', '/')}.class", b"")
    return file


def test_the_client_runs_with_its_settings_and_without_a_secret_on_the_command_line(
    client: SparkClient, written: Written, tmp_path: Path
) -> None:
    run = client.mark("repository", written.store)
    assert run.mark_id == "new-mark"
    assert run.wall_seconds > 0
    arguments, properties = (tmp_path / "arguments").read_text(), (tmp_path / "properties").read_text().splitlines()
    assert "secret" not in arguments
    assert arguments.split()[-3:] == [str(tmp_path / "client.jar"), "repository", "us-east-1"]
    assert f"--class {CLIENT_CLASS}" in arguments
    assert {
        "spark.hadoop.lakefs.api.url=http://127.0.0.1:1/api/v1",
        "spark.hadoop.lakefs.api.secret_key=very secret",
        "spark.hadoop.lakefs.gc.do_sweep=false",
        "spark.hadoop.fs.s3a.endpoint=http://127.0.0.1:2",
        "spark.hadoop.fs.s3a.secret.key=another\\\\secret",
        "spark.sql.shuffle.partitions=4",
        f"spark.jars=local:{tmp_path / 'further.jar'}",
    } <= set(properties)
    assert stat.S_IMODE((tmp_path / "client/spark.properties").stat().st_mode) == 0o600
    client.sweep("repository", "new-mark")
    properties = (tmp_path / "properties").read_text().splitlines()
    assert {"spark.hadoop.lakefs.gc.do_mark=false", "spark.hadoop.lakefs.gc.mark_id=new-mark"} <= set(properties)
    assert not any("do_sweep" in line for line in properties)


def test_a_client_that_fails_or_writes_no_mark_is_no_result(
    client: SparkClient, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.mark("repository", written.store)
    with pytest.raises(CollectorFailedError, match="0 marks instead of one"):
        client.mark("repository", written.store)


def test_a_failed_client_shows_the_end_of_its_output(
    client: SparkClient, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(client._environment, "EXIT", "3")
    with pytest.raises(CollectorFailedError, match=r"exit code 3:\n+the reason"):
        client.mark("repository", written.store)


def test_properties_refuse_a_line_break() -> None:
    with pytest.raises(ConfigurationError, match="line break"):
        properties_text({"name": "a\nspark.jars=b"})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file: None, "Cannot read"),
        (lambda file: file.write_bytes(b"not a jar"), "is not a jar"),
        (lambda file: zipfile.ZipFile(file, "w").close(), f"has no class {CLIENT_CLASS}"),
        (client_jar, "has no bin/spark-submit"),
    ],
)
def test_a_missing_or_wrong_jar_is_refused_before_anything_is_written(
    make: Callable[[Path], object],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "secret")
    jar = tmp_path / "client.jar"
    make(jar)
    options = ["spark_client", "--server", "http://127.0.0.1:1", "--set", "namespace=s3://bucket"]
    with pytest.raises(SystemExit) as ended:
        command.main([*options, "--client-jar", str(jar), "--spark-home", str(tmp_path)])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in error
    assert str(tmp_path) in error


def test_without_a_jar_the_benchmark_says_which_option_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(SystemExit):
        command.main(["spark_client", "--server", "http://127.0.0.1:1"])
    assert "Pass --client-jar FILE" in capsys.readouterr().err
