"""A history as Spark reads it: the session that the user's own settings make.

`SPARK_CONF_DIR` and `PYSPARK_SUBMIT_ARGS` say which cluster; without them it is this machine. Rules
of this file: nothing is printed. What the JVM says goes nowhere, unless it does not start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa

from ...errors import UsageError
from ..layout import as_pattern

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
}
_OF_A_REASON = re.compile("exception|error|no such|not found|is not set", re.IGNORECASE)


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
        self.failures: tuple[type[Exception], ...] = (PySparkException, Py4JError)
        builder = SparkSession.builder.appName("probing")
        for name, value in _SETTINGS.items():
            builder = builder.config(name, value)
        with _kept_quiet() as said:
            try:
                self._session: Any = builder.getOrCreate()
            except self.failures as error:
                raise UsageError(
                    f"Spark does not start: {_reason(said, error)}.",
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
        self._session.stop()


@contextlib.contextmanager
def _kept_quiet() -> Iterator[IO[bytes]]:
    """Give what is started meanwhile another standard error, for as long as it lives."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as said:
        before = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)


def _reason(said: IO[bytes], error: BaseException) -> str:
    """Why it does not start: what was said first where there is no JVM, else the error's own."""
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    if "JAVA_GATEWAY" not in str(error) or not lines:
        lines = str(error).splitlines() or [type(error).__name__]
    told = [line.strip() for line in lines if line.strip()] or [type(error).__name__]
    return next(filter(_OF_A_REASON.search, told), told[0]).rstrip(".")
