"""A history as Spark reads it: the session that the user's own settings make.

`SPARK_CONF_DIR` and `PYSPARK_SUBMIT_ARGS` say which cluster; without them it is this machine. A
session that is open already stays open. Rules of this file: nothing is printed. What the JVM says
goes nowhere, unless it does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import IO, Any

import pyarrow as pa

from ...errors import UsageError
from ..layout import as_pattern
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
        UsageError: It does not start.
    """

    def __init__(self, root: str) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        self._root = root
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

    def open(self, name: str, files: Sequence[str]) -> list[str]:
        """See `asking.Engine`."""
        reader = self._session.read.option("basePath", self._root).option("mergeSchema", "true")
        frame = reader.parquet(*map(as_pattern, files))
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


def _lines(said: IO[bytes], error: BaseException) -> list[str]:
    """What was said where there is no JVM, else what the error says."""
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    return lines if "JAVA_GATEWAY" in str(error) and lines else str(error).splitlines()
