"""Start the Spark session of a run, with the defaults of lakefs-gc."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.spark.compat import refuse_unsupported
from lakefs_gc.engine.spark.java import ensure_java, java_for_start
from lakefs_gc.engine.spark.java_cache import drop_used_cache, java_cache_options
from lakefs_gc.engine.spark.scale import SMALL, SMALL_CONFIG, may_be_small
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.endpoints import STATED_FOR_WORKERS, state_endpoints

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")

_COLLECTOR_OPTION = re.compile(r"-XX:\+Use\w+GC\b")
_COMPILER_OPTION = re.compile(r"-XX:\S*Tier|-Xint\b|-Xcomp\b")

# Ten times Java's defaults, because its optimizing compiler pays off only in runs of minutes. On two cores, 10 million
# objects took 138 s of processor time instead of 151 s (149 s instead of 153 s elapsed). 103,000 objects took 75 s
# instead of 83 s (63 s instead of 66 s elapsed).
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)

# A small run ends before Java's optimizing compiler and parallel collector pay off: of 34 s of processor time for 200
# objects they take 9 s.
# Without the optimizing compiler Java keeps 48 MiB for compiled code. A session that marks many repositories fills them
# within a minute or two, and Java then stops compiling for good.
_SMALL_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
_SMALL_COLLECTOR = "-XX:+UseSerialGC"

_STARTING = threading.RLock()
"""Held while Java and Spark start: two threads would start two of each."""

_started_here = threading.Event()
"""Whether lakefs-gc started the Spark of this process."""

_is_guess = threading.Event()
"""Whether Java runs with the options for a small run without anyone knowing yet that the run is small."""


@dataclass(frozen=True)
class Size:
    """How large a run will be, as far as that is known before its listing. ``is_guess``: unknown, assumed to be small.

    Java starts with options for a small run, or for one of any size.
    """

    small: bool = True
    is_guess: bool = False


_MANY = 1_000_000
_LOCAL_RETRIES = 4
"""After 0.05 s, and after four times as long each time: 4 s together."""
_ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"

DEFAULT_SPARK_CONFIG: dict[str, str] = {
    "spark.master": "local[*]",
    "spark.app.name": "lakefs-gc",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    # Addresses are compared byte by byte, and timestamps read back as they were written.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Spark 4 fails on an overflow and on an invalid cast. Spark 3.5 would return null or a wrong number by default.
    "spark.sql.ansi.enabled": "true",
    # Adaptive execution merges small partitions, so small runs do not pay for the number that large runs need.
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "64",
    # What a shuffle writes has checksums (``_CAREFUL_CONTEXT``), whatever the files of this Spark say.
    "spark.io.compression.codec": "lz4",
    "spark.shuffle.compress": "true",
    "spark.shuffle.spill.compress": "true",
    "spark.broadcast.compress": "true",
    # Two copies of a task would delete and write the ledger twice, which is harmless but useless.
    "spark.speculation": "false",
    # This size is for batches that Spark sends to Python. Listings and ranges have their own batch sizes.
    _ROWS_PER_BATCH: "10000",
    # Over TCP each Python task waits 40 ms for an acknowledgement before it gets its first row.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.warehouse.dir": "/nonexistent",
    # Otherwise each function of columns asks Java eight times, to name a line of this package in errors.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""The defaults of lakefs-gc. The configuration overrides them."""

_CAREFUL = {
    # Spark's other reader fills a page that lost its end with the first value.
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.sql.parquet.enableNestedColumnVectorizedReader": "true",
    # What Spark writes is read by pyarrow, too, which takes no other unit.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings of a session that nothing may override."""

_CAREFUL_CONTEXT = {
    # LZ4 has a checksum. With another codec, or none, nothing shows a damaged file of a shuffle.
    "spark.io.compression.codec": "lz4",
    "spark.shuffle.compress": "true",
    "spark.shuffle.spill.compress": "true",
    "spark.broadcast.compress": "true",
    "spark.broadcast.checksum": "true",
}
"""Settings of Spark that nothing may override. A session that starts later cannot change them."""


def is_local(session: SparkSession) -> bool:
    """Return whether a session's tasks run on this machine. A server of Spark Connect may be on another."""
    context = getattr(session, "sparkContext", None)
    return context is not None and str(context.master).startswith("local")


def parallel_tasks(session: SparkSession) -> int:
    """Return the number of concurrent tasks: ``spark.default.parallelism`` if configured, otherwise Spark's default."""
    configured = session.conf.get("spark.default.parallelism", None)
    if configured:
        return int(configured)
    context = getattr(session, "sparkContext", None)
    if context is not None:
        if not context.master.startswith("local"):
            session.range(1).count()  # waits for the executors, which Spark must know to count the cores
        return int(context.defaultParallelism)
    # Spark Connect has no context, but it splits a range into as many partitions as concurrent tasks.
    return session.range(_MANY).select(F.spark_partition_id()).distinct().count()


def start_spark(spark_config: dict[str, Any], *, small: bool = False) -> SparkSession:
    """Return a session with our defaults, overridden by ``spark_config``. Reuses a session that is already running.

    ``small``: whether the first run is small (``scale``), which decides how Java compiles. ``scale_session`` scales the
    session itself, because Spark may be started by a thread that knows nothing of the run.

    ``spark.remote`` (a Spark Connect URL) replaces ``spark.master``. The JVM then belongs to the server, and settings
    that apply only when it starts have no effect.

    Raise ``ConfigurationError`` for settings with which Spark reads damaged files as others, without an error.
    """
    session = _session(spark_config, small=small)
    _refuse_careless(session)
    context = getattr(session, "sparkContext", None)
    # The files of a Spark count, too. One of Spark Connect would show nothing but what was asked of it.
    of_files: Any = {} if context is None else context._conf
    state_endpoints({name: str(of_files.get(name) or "") for name in STATED_FOR_WORKERS} | spark_config)
    return session


def _session(spark_config: dict[str, Any], *, small: bool) -> SparkSession:
    settings = _checked(spark_config)
    with _STARTING:
        if "spark.remote" in settings:
            return _connect(settings)
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            return _start(_from_spark_submit() | settings, small=small)
        if SparkContext._gateway is not None:  # Java runs already
            if small or not _is_guess.is_set():
                _is_guess.clear()
                return _start(settings, small=small)
            logger.info("the run is not small: Java starts again, with the options for a large one")
            _end_java()
        with java_for_start(ensure_java()):
            return _start(settings, small=small)


def _refuse_careless(session: SparkSession) -> None:
    context = getattr(session, "sparkContext", None)
    # A session shows what was asked of it, even of a Spark that ran before. One of Spark Connect knows nothing else.
    # ``getConf`` would copy all settings, with a call of Java for each: 50 ms.
    of_context: Any = session.conf if context is None else context._conf
    for settings, conf in ((_CAREFUL, session.conf), (_CAREFUL_CONTEXT, of_context)):
        for name, needed in settings.items():
            if (found := str(conf.get(name, needed))).strip().upper() != needed.upper():
                raise ConfigurationError(
                    f"Spark's setting {name} is {found}, and must be {needed}. Otherwise Spark gives other values for "
                    "a damaged file, and no error",
                    remedy=f'Write "{name}" = "{needed}" below [spark]. A Spark that runs already (of a notebook, or a '
                    "server of Spark Connect) must be started with it",
                )


def start_spark_in_advance(spark_config: dict[str, Any], size_of_run: Callable[[], Size | None]) -> SparkSession | None:
    """Start Java at once, and Spark in it when ``size_of_run`` returns; None: end Java again.

    Java starts with the options for a small run. If the run is not small, another Java takes its place. After a guess
    that happens in the first ``start_spark``, which is told how large the run is. ``start_spark`` of other threads
    waits meanwhile. Not for Spark Connect and spark-submit, where Java runs already.
    """
    settings, may_be = _checked(spark_config), may_be_small(spark_config)
    with _STARTING:
        if SparkContext._gateway is not None:
            if (size := size_of_run()) is not None:
                start_spark(spark_config, small=size.small)
            return None
        with java_for_start(ensure_java()):
            gateway: Any = _launched(lambda: launch_gateway(_conf(settings, small=may_be)))  # type: ignore[no-untyped-call]
        size = size_of_run()
        if size is not None and size.small == may_be:
            SparkContext._ensure_initialized(gateway=gateway)
        else:
            _close(gateway)
        if size is None:
            return None
        session = start_spark(spark_config, small=size.small)
        if size.small and size.is_guess:
            _is_guess.set()
        return session


def _end_java() -> None:
    """Stop Spark, and end the Java that this process started for it."""
    _is_guess.clear()
    SparkSession.builder.getOrCreate().stop()
    _close(SparkContext._gateway)
    SparkContext._gateway = SparkContext._jvm = None


def _close(gateway: Any) -> None:
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends when its input closes


def is_spark_of_caller() -> bool:
    """Return whether the Spark of this process, if any, ran before lakefs-gc: in a notebook, or a job on Databricks."""
    return SparkContext._active_spark_context is not None and not _started_here.is_set()


def _checked(spark_config: dict[str, Any]) -> dict[str, str]:
    settings = {name: str(value) for name, value in spark_config.items()}
    _refuse_batches_without_rows(settings)
    refuse_unsupported(connect="spark.remote" in settings)
    return settings


def _start(settings: dict[str, str], *, small: bool) -> SparkSession:
    def start() -> SparkSession:
        builder: SparkSession.Builder = SparkSession.builder
        for name, value in _resolved(settings, small=small).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    if SparkContext._active_spark_context is None:
        _started_here.set()
    with _keep_interrupt_handler():
        return _launched(start)


def _launched(launch: Callable[[], T]) -> T:
    """Return ``launch()``. If Java ends at its start with a cache of classes, try again without it."""
    try:
        return launch()
    except PySparkRuntimeError:
        if not drop_used_cache():
            raise
        logger.warning("Java could not start with its cache of classes, so this was removed. Java starts without it")
        return launch()


def _conf(settings: dict[str, str], *, small: bool) -> SparkConf:
    return SparkConf().setAll(list(_resolved(settings, small=small).items()))


def _resolved(settings: dict[str, str], *, small: bool) -> dict[str, str]:
    """Return the settings together with the defaults."""
    settings = DEFAULT_SPARK_CONFIG | settings
    if "spark.pyspark.python" in settings:  # spark-submit would do this
        os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings.setdefault("spark.driver.host", "127.0.0.1")
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
    if SparkContext._gateway is None:  # otherwise Java runs already
        configured = settings.get("spark.driver.extraJavaOptions", "")
        settings["spark.driver.extraJavaOptions"] = _java_options(configured, small=small)
    return settings


def scale_session(session: SparkSession, spark_config: dict[str, Any], *, small: bool) -> None:
    """Set what a small run, or one of any size, needs of a running session. The configuration takes precedence."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        spark_config = _from_spark_submit() | spark_config
    small = small and may_be_small(spark_config)
    for name, value in SMALL_CONFIG.items():
        if name in spark_config and name != SMALL:
            session.conf.set(name, str(spark_config[name]))
        elif small:
            session.conf.set(name, value)
        elif name in DEFAULT_SPARK_CONFIG:
            session.conf.set(name, DEFAULT_SPARK_CONFIG[name])
        else:
            session.conf.unset(name)


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Keep the handler of Ctrl-C. Spark would replace the handler of Dagster, which marks a run as canceled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None:  # None: the handler was not installed by Python
            signal.signal(signal.SIGINT, handler)


def _refuse_batches_without_rows(settings: dict[str, str]) -> None:
    """Raise ``ConfigurationError`` for a number that Spark takes for no limit, and Arrow refuses in the middle."""
    rows = settings.get(_ROWS_PER_BATCH, "1")
    if not (rows.strip().isdecimal() and int(rows)):
        raise ConfigurationError(
            f"{_ROWS_PER_BATCH} is {rows!r}, but must be a positive number",
            remedy=f"Set {_ROWS_PER_BATCH} in [spark] to a positive number, or remove it",
        )


def _java_options(configured: str, *, small: bool = False) -> str:
    options = [f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}", configured]
    if not _COLLECTOR_OPTION.search(configured):
        # Pauses do not matter here. Matching 20 million objects takes an eighth less time than with Java's default.
        options.insert(1, _SMALL_COLLECTOR if small else "-XX:+UseParallelGC")
    if not _COMPILER_OPTION.search(configured):
        options[1:1] = _SMALL_COMPILER if small else _COMPILE_LATER
    options[1:1] = java_cache_options(configured)
    return " ".join(options).strip()


def _from_spark_submit() -> dict[str, str]:
    """Return the settings of spark-submit, which started Java and this process. They override our defaults."""
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _connect(settings: dict[str, str]) -> SparkSession:
    remote = settings.pop("spark.remote")
    builder: SparkSession.Builder = SparkSession.builder.remote(remote)
    session_settings = {name: value for name, value in DEFAULT_SPARK_CONFIG.items() if name.startswith("spark.sql.")}
    del session_settings["spark.sql.warehouse.dir"]  # a static setting of the server
    is_local_server = remote.startswith("local")
    for name, value in (session_settings | settings).items():
        # A running server would show these as set, and not do what they say.
        if is_local_server or name not in _CAREFUL_CONTEXT:
            builder = builder.config(name, value)
    if not is_local_server:
        return builder.getOrCreate()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with java_for_start(ensure_java()):
        session = builder.getOrCreate()
    _give_up_soon(session)
    return session


def _give_up_soon(session: Any) -> None:
    """Try for a few seconds only to reach a server on this machine: once it has ended, nothing starts it again.

    PySpark itself tries for ten minutes, in which a run shows nothing.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=_LOCAL_RETRIES)])
