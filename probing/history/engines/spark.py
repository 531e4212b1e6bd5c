"""A history as Spark reads it: the session that the user's own settings make.

`SPARK_CONF_DIR` and `PYSPARK_SUBMIT_ARGS` say which cluster; without them it is this machine. A
session that is open already stays open. Rules of this file: nothing is printed. What the JVM says
goes nowhere, unless it does not start. S3 it reads by what the user has put on its class path.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import IO, Any

import pyarrow as pa

from ...errors import UsageError
from ..layout import as_pattern
from ..scanning.source import Source
from ..stores.address import is_url
from . import s3
from .quiet import kept_quiet, reason

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
}


class Spark:
    """See `asking.Engine`.

    Raises:
        UsageError: It does not start, or cannot read S3.
    """

    passing: tuple[type[Exception], ...] = ()

    def __init__(self, source: Source) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        self._source = source
        self._options: dict[str, str] = {}
        self._is_ours = SparkSession.getActiveSession() is None
        self.failures: tuple[type[Exception], ...] = (PySparkException, Py4JError)
        builder = SparkSession.builder.appName("probing")
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        with kept_quiet() as said:
            try:
                self._session: Any = builder.getOrCreate()
            except self.failures as error:
                raise UsageError(
                    f"Spark does not start: {reason(_lines(said, error), error)}.",
                    help="It needs Java 17 or newer: JAVA_HOME says which.",
                ) from None
            self._session.sparkContext.setLogLevel("OFF")
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
        if is_url(source.name):
            self._prepare_s3(source.name)

    def _prepare_s3(self, url: str) -> None:
        """Have S3 read as the history reads it.

        Raises:
            UsageError: There is nothing that could.
        """
        context = self._session.sparkContext
        settings = context._jsc.hadoopConfiguration()  # noqa: SLF001 - as everybody reaches it
        hadoop = context._jvm.org.apache.hadoop  # noqa: SLF001
        try:
            hadoop.fs.FileSystem.getFileSystemClass("s3a", settings)
        except self.failures:
            version = hadoop.util.VersionInfo.getVersion()
            self.close()
            raise UsageError(
                f"Spark cannot read {url}: hadoop-aws {version} is not on its class path.",
                help="Add that jar and the AWS SDK that it names: spark.jars in"
                " spark-defaults.conf, or --jars in PYSPARK_SUBMIT_ARGS.",
            ) from None
        self._options = s3.of_spark(url, settings.get)

    def open(self, name: str, files: Sequence[str]) -> list[str]:
        """See `asking.Engine`."""
        reader = self._session.read.options(**self._options, mergeSchema="true")
        paths = [as_pattern(_place(self._source.address(file))) for file in files]
        frame = reader.option("basePath", _place(self._source.address(""))).parquet(*paths)
        frame.createOrReplaceTempView(name)
        return list(frame.columns)

    def ask(self, sql: str, most: int | None) -> pa.Table:
        """See `asking.Engine`."""
        frame = self._session.sql(sql)
        return (frame if most is None else frame.limit(most)).toArrow()

    def close(self) -> None:
        """See `asking.Engine`."""
        if self._is_ours:
            self._session.stop()


def _place(address: str) -> str:
    """What Spark calls a place: one in S3 as its library does."""
    return f"s3a://{address.removeprefix(s3.KIND)}" if is_url(address) else address


def _lines(said: IO[bytes], error: BaseException) -> list[str]:
    """What was said where there is no JVM, else what the error says."""
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    return lines if "JAVA_GATEWAY" in str(error) and lines else str(error).splitlines()
