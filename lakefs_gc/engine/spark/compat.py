"""The differences between the versions of Spark that lakefs-gc runs on, 3.5 to 4.3. Nothing else asks for a version."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas import types as arrow_types
from pyspark.sql.types import StructType

from lakefs_gc.engine.spark.checked_file import CheckedFile
from lakefs_gc.errors import ConfigurationError

OLDEST, NEWEST = (3, 5), (4, 3)
"""The versions of Spark that are tested."""

_FIRST_OF_NEXT = (5, 0)
_NEWEST_PYTHON_FOR_3 = (3, 11)
# Spark 3.5 refuses Java 21 in its Arrow, and Spark 4.0 and 4.1 refuse Java 25 in their Hadoop.
_JAVA = {(3, 5): (8, 17), (4, 0): (17, 21), (4, 1): (17, 21)}
_JAVA_OF_OTHERS = (17, None)

_TABLES: WeakKeyDictionary[DataFrame, pa.Table] = WeakKeyDictionary()
"""The Arrow tables of DataFrames that were made from them, as long as these are in use."""

# A % that Java's URLDecoder refuses. It takes the digits of every script, and wide letters.
_NO_ESCAPE = r"%(?![[\p{Nd}&&[\u0000-\uFFFF]]A-Fa-f\uFF21-\uFF26\uFF41-\uFF46]{2})"


def version_of(text: str) -> tuple[int, int]:
    """Return the major and minor number of a version of Spark, such as ``3.5.7`` or ``4.0.1.dev2``."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def spark_version() -> tuple[int, int]:
    """Return the major and minor number of the installed Spark."""
    return version_of(pyspark.__version__)


def java_versions(version: tuple[int, int] | None = None) -> tuple[int, int | None]:
    """Return the oldest and the newest Java of a version of Spark (default: the installed one); None if unlimited."""
    return _JAVA.get(version or spark_version(), _JAVA_OF_OTHERS)


def java_text(version: tuple[int, int] | None = None) -> str:
    """Return ``java_versions`` in words."""
    oldest, newest = java_versions(version)
    return f"Java {oldest} or newer" if newest is None else f"Java {oldest} to {newest}"


def refuse_unsupported(
    version: tuple[int, int] | None = None, python: tuple[int, int] = sys.version_info[:2], *, connect: bool = False
) -> None:
    """Raise ``ConfigurationError`` unless lakefs-gc runs on a version of Spark (default: the installed one).

    ``connect``: whether the session is one of Spark Connect.
    """
    version = version or spark_version()
    text = ".".join(map(str, version))
    if not OLDEST <= version < _FIRST_OF_NEXT:
        raise ConfigurationError(
            f"Spark {text} is not supported. lakefs-gc needs Spark 3.5 to 4.3",
            remedy="Run `pip install 'pyspark>=3.5,<5'`, with the version of your cluster",
        )
    if version < (4, 0) and python > _NEWEST_PYTHON_FOR_3:
        raise ConfigurationError(
            f"Spark {text} does not support Python {python[0]}.{python[1]}",
            remedy="Use Python 3.11, or Spark 4.0 or newer",
        )
    if version < (4, 0) and connect:
        raise ConfigurationError(
            f"lakefs-gc cannot use Spark Connect with Spark {text}: it does not report the number of written rows",
            remedy="Set spark.master instead of spark.remote, or use Spark 4.0 or newer",
        )


def examine_spark(*, connect: bool = False) -> tuple[str, str]:
    """Return the version of the installed Spark with a note, and what to do if it is untested ("": it is tested).

    Raise ``ConfigurationError`` if it is not supported.
    """
    version = spark_version()
    refuse_unsupported(version, connect=connect)
    if version > NEWEST:
        return f"version {pyspark.__version__} is newer than 4.3, the newest that was tested", "install Spark 4.3"
    return f"version {pyspark.__version__}, which needs {java_text()}", ""


def arrow_schema(struct: StructType) -> pa.Schema:
    """Return the columns of a DataFrame as Arrow's. Times are in UTC."""
    if spark_version() >= (4, 2):
        return cast(Any, arrow_types).to_arrow_schema(struct, timezone="UTC")
    schema = cast(Any, arrow_types).to_arrow_schema(struct)
    times = [field.type for field in schema if pa.types.is_timestamp(field.type)]
    assert all(time.tz == "UTC" for time in times), "before the argument timezone, the time zone was always UTC"
    return schema


@cache
def parse_schema(ddl: str) -> StructType:
    """Return a schema that is written as DDL, such as ``"file string"``. Needs a session, which takes 4 ms."""
    if spark_version() >= (4, 0):
        return cast(StructType, StructType.fromDDL(ddl))
    from pyspark.sql.types import _parse_datatype_string

    return cast(StructType, _parse_datatype_string(ddl))


def from_arrow(spark: SparkSession, table: pa.Table, struct: StructType) -> DataFrame:
    """Return an Arrow table as a DataFrame. Its columns must be those of ``arrow_schema``."""
    # Spark takes a batch without rows for the end of the table, so all rows after it would be lost.
    filled = [batch for batch in table.to_batches() if batch.num_rows]
    table = pa.Table.from_batches(filled, table.schema) if filled else table.schema.empty_table()
    table = table.cast(arrow_schema(struct))
    frame = _table_frame() if hasattr(spark, "_jsparkSession") else _remote_table_frame()
    rows = cast(DataFrame, frame(spark, table, struct))
    _TABLES[rows] = table
    return rows


@cache
def _table_frame() -> Any:
    """Return the class of DataFrames of this process's Java that are sent to it when Spark first needs them.

    Most tables of a small run never are: that takes 0.1 s for 60,000 rows.
    """
    classic: Any = DataFrame
    if spark_version() >= (4, 0):
        from pyspark.sql.classic.dataframe import DataFrame as classic  # noqa: N813

    class TableFrame(classic):  # type: ignore[misc]
        """An Arrow table as a DataFrame."""

        _in_java: Any

        def __new__(cls, *_: Any) -> Any:
            return object.__new__(cls)  # before Spark 4.2, its class takes two arguments

        def __init__(self, session: Any, table: pa.Table, struct: StructType) -> None:
            super().__init__(None, session)
            self._arrow, self._struct = table, struct
            self._schema = struct
            self.__dict__["schema"] = struct  # where the class caches it

        @property
        def _jdf(self) -> Any:
            if self._in_java is None:
                self._in_java = _java_rows(self._session, self._arrow, self._struct)
            return self._in_java

        @_jdf.setter
        def _jdf(self, in_java: Any) -> None:
            self._in_java = in_java

    return TableFrame


@cache
def _remote_table_frame() -> Any:
    """Return the class of DataFrames of a server of Spark Connect that are sent to it when it first needs them.

    Otherwise each table has the server asked for settings, and then for the columns that it was just told.
    """
    from pyspark.sql.connect.dataframe import DataFrame as RemoteFrame

    remote: Any = RemoteFrame

    class RemoteTableFrame(remote):  # type: ignore[misc]
        """An Arrow table as a DataFrame."""

        def __new__(cls, *_: Any) -> Any:
            return object.__new__(cls)

        def __init__(self, session: Any, table: pa.Table, struct: StructType) -> None:
            self._arrow, self._struct = table, struct
            self._sent: Any = self  # the class insists on a plan
            super().__init__(self, session)
            self._cached_schema, self._sent = struct, None

        @property
        def _plan(self) -> Any:
            if self._sent is None:
                self._sent = self._session.createDataFrame(self._arrow, self._struct)._plan
            return self._sent

        @_plan.setter
        def _plan(self, plan: Any) -> None:
            """What the class sets is not needed."""

    return RemoteTableFrame


def _java_rows(session: Any, table: pa.Table, struct: StructType) -> Any:
    """Return a table as Java's DataFrame, sent as Spark 3.5 to 4.3 send a DataFrame of pandas.

    Spark 3.5 has no public function for Arrow. That of Spark 4 calls Java 38 times, this one a third as often.
    """
    checked = CheckedFile()
    batches = session._sc._serialize_to_jvm(
        # Without any batch, the JVM would not find the end of the stream.
        table.to_batches(max_chunksize=session._jconf.arrowMaxRecordsPerBatch())
        or [pa.RecordBatch.from_pylist([], schema=table.schema)],
        checked,
        lambda file: checked.read_by(session._jvm.PythonSQLUtils.readArrowStreamFromFile, file),
        session._jvm.ArrowIteratorServer,
    )
    return session._jvm.PythonSQLUtils.toDataFrame(batches, struct.json(), session._jsparkSession)


def known_table(rows: DataFrame) -> pa.Table | None:
    """Return the Arrow table that a DataFrame was made of (``from_arrow``); None if Spark computes its rows."""
    return _TABLES.get(rows)


def to_arrow(rows: DataFrame) -> pa.Table:
    """Return a DataFrame as an Arrow table, in the driver. Spark is not asked for what is ``from_arrow``: 40 ms."""
    if (table := known_table(rows)) is not None:
        return table
    if spark_version() >= (4, 0):
        return rows.toArrow()
    batches = cast(Any, rows)._collect_as_arrow()
    fields = arrow_schema(rows.schema)
    return pa.Table.from_batches(batches).cast(fields) if batches else fields.empty_table()


def try_url_decode(text: Column) -> Column:
    """Return a column of URLs decoded; null where one cannot be decoded."""
    if spark_version() >= (4, 0):
        return F.try_url_decode(text)
    return F.when(~text.rlike(_NO_ESCAPE), F.url_decode(text))
