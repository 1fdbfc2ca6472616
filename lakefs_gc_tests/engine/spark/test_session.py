"""The Spark session of a run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakefs_gc.engine.spark import session
from lakefs_gc.engine.spark.java import ensure_java
from lakefs_gc.engine.spark.scale import SMALL, SMALL_CONFIG, is_small
from lakefs_gc.engine.spark.session import (
    DEFAULT_SPARK_CONFIG,
    Size,
    _java_options,
    is_spark_of_caller,
    scale_session,
    start_spark,
    start_spark_in_advance,
)
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc_tests.support.processes import run_python


def test_a_running_session_is_reused(spark: SparkSession, spark_config: dict[str, str]) -> None:
    first, second = SparkResource(spark_config=spark_config), SparkResource(spark_config=spark_config)
    assert first.session.sparkContext is second.session.sparkContext is SparkContext._active_spark_context
    assert start_spark(spark_config).sparkContext is spark.sparkContext


def test_the_number_of_concurrent_tasks_follows_the_configuration(
    spark: SparkSession, spark_config: dict[str, str]
) -> None:
    resource = SparkResource(spark_config=spark_config)
    assert resource.cores == spark.sparkContext.defaultParallelism == 1
    assert resource.cores == int(spark_config["spark.default.parallelism"])


def test_safe_settings_reach_the_session(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.speculation") == "false"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2", "what is configured wins"
    assert DEFAULT_SPARK_CONFIG["spark.speculation"] == "false"


_COLLECTORS = """
from lakefs_gc.engine.spark.session import start_spark
spark = start_spark({"spark.master": "local[1]"})
beans = spark._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
print(sorted(bean.getName() for bean in beans))
spark.stop()
"""


def test_java_uses_the_parallel_collector_unless_configured_otherwise() -> None:
    """In a new process: another test may have started the Java of this one, for a small run."""
    found = subprocess.run([sys.executable, "-c", _COLLECTORS], check=True, capture_output=True, text=True)
    assert found.stdout.strip().endswith("['PS MarkSweep', 'PS Scavenge']")
    configured = "-Xss4m -XX:+UseSerialGC"
    assert _java_options(configured).endswith(configured)
    assert "ParallelGC" not in _java_options(configured)


def test_java_optimizes_late_unless_configured_otherwise() -> None:
    assert "-XX:Tier4CompileThreshold=150000" in _java_options("-Xss4m").split()
    for configured in ("-XX:TieredStopAtLevel=1", "-XX:-TieredCompilation", "-XX:Tier3DelayOn=7", "-Xint"):
        assert "Tier4" not in _java_options(configured)
        assert _java_options(configured).endswith(configured)


def test_java_optimizes_nothing_for_a_small_run_unless_configured_otherwise() -> None:
    small = _java_options("-Xss4m", small=True).split()
    assert {"-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC"} <= set(small)
    assert not any("Tier4" in option or "Parallel" in option for option in small)
    configured = "-XX:TieredStopAtLevel=3 -XX:+UseZGC"
    assert _java_options(configured, small=True).endswith(configured)
    assert "Level=1" not in _java_options(configured, small=True)


@pytest.mark.parametrize("rows", ["0", "-1", "many", ""])
def test_a_batch_must_have_rows(rows: str) -> None:
    """Spark takes 0 for no limit, and Arrow refuses it in the middle of a run."""
    with pytest.raises(ConfigurationError, match=r"maxRecordsPerBatch is .*must be a positive number"):
        start_spark({"spark.sql.execution.arrow.maxRecordsPerBatch": rows})


def test_a_session_is_scaled_and_back_except_for_what_is_configured(
    spark: SparkSession, spark_config: dict[str, str]
) -> None:
    configured = {"spark.sql.shuffle.partitions": "4", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    resource = SparkResource(spark_config=configured)
    resource.scale(True)
    assert resource.session.conf.get(SMALL) == "true"
    assert {name: spark.conf.get(name) for name in SMALL_CONFIG} == SMALL_CONFIG | configured
    resource.scale(False)
    assert not is_small(spark)
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
    scale_session(spark, spark_config, small=False)  # as the other tests have it


def test_a_configured_scale_is_not_changed(spark: SparkSession, spark_config: dict[str, str]) -> None:
    resource = SparkResource(spark_config=spark_config)
    resource.scale(True)
    assert not resource.is_small
    assert not is_small(resource.session)


def test_no_run_is_small_because_the_configuration_says_so(spark: SparkSession) -> None:
    resource = SparkResource(spark_config={SMALL: "true"})
    resource.scale(False)
    assert not resource.is_small
    assert not is_small(resource.session)


def test_a_spark_that_ran_before_is_of_the_caller(
    spark: SparkSession, spark_config: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_spark_of_caller(), "these tests start it as a command does"
    monkeypatch.setattr(session, "_started_here", threading.Event())
    start_spark_in_advance(spark_config, lambda: Size(small=False))
    assert is_spark_of_caller()


_IN_ADVANCE = """
import sys
import threading
from lakefs_gc.engine.spark import session

launched = []
launch_gateway = session.launch_gateway
session.launch_gateway = lambda conf: launched.append(launch_gateway(conf)) or launched[-1]
said, small = sys.argv[1:]
size = {
    "small": session.Size(), "large": session.Size(small=False), "unknown": session.Size(is_guess=True), "nothing": None
}[said]
is_decided = threading.Event()
config = {"spark.master": "local[1]", "spark.driver.memory": "1g"}
thread = threading.Thread(
    target=session.start_spark_in_advance, args=(config, lambda: is_decided.wait() and size), daemon=True
)
thread.start()
while not launched:
    is_decided.wait(0.01)
threading.Timer(0.2, is_decided.set).start()
spark = session.start_spark(config, small=small == "small")  # as the first stage, while the thread still waits
thread.join()
assert session.start_spark(config, small=False) is spark, "a later stage, and a later run, get the same Spark"
java = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print(spark.range(3).count(), "-XX:TieredStopAtLevel=1" in java, spark.sparkContext._gateway is launched[0])
assert not session.is_spark_of_caller()
if spark.sparkContext._gateway is not launched[0]:
    launched[0].proc.wait(60)
    print("the first Java ended")
"""


@pytest.mark.of_ci
@pytest.mark.parametrize(
    ("said", "is_small", "printed"),
    [
        ("small", "small", "3 True True"),
        ("large", "large", "3 False False\nthe first Java ended"),
        ("nothing", "large", "3 False False\nthe first Java ended"),
        ("unknown", "small", "3 True True"),
        ("unknown", "large", "3 False False\nthe first Java ended"),
        ("small", "large", "3 True True"),  # as a sweep, which says so of all of its stages
    ],
)
@pytest.mark.long(20)
def test_java_starts_before_the_size_of_the_run_is_known(
    tmp_path: Path, said: str, is_small: str, printed: str
) -> None:
    done = run_python(_IN_ADVANCE, tmp_path, said, is_small)
    assert done.stdout.strip() == printed, done.stderr[-3000:]


_SUBMITTED = """
from lakefs_gc.pipeline.resources.spark import SparkResource

resource = SparkResource(spark_config={"spark.sql.shuffle.partitions": "5"})
session = resource.session
names = ("spark.master", "spark.app.name", "spark.sql.shuffle.partitions", "spark.sql.session.timeZone")
print(resource.cores, *(session.conf.get(name) for name in names))
"""


@pytest.mark.of_ci
def test_settings_of_spark_submit_override_the_defaults(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SUBMITTED)
    options = ("--master", "local[3]", "--name", "mine", "--conf", "spark.sql.shuffle.partitions=7")
    done = subprocess.run(
        [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *options, str(script)],
        env={**os.environ, "JAVA_HOME": str(ensure_java()), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["3", "local[3]", "mine", "5", "UTC"], "and the configuration wins over it"
