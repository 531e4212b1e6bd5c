"""Has an engine answer saved questions: ``answering ENGINE PLACE RUN PROJECT``.

All over one connection. ``ray`` is a cluster of two workers on this machine; which Spark it is says
PYSPARK_SUBMIT_ARGS. Writes JSON: how many workers there are, the questions that are not taken and
why, and those that have another answer than DuckDB's.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from probing.cli.questions.library import QUESTIONS
from probing.cli.questions.records import put_in
from probing.errors import SqlError
from probing.history.engines.asking import ask, started
from probing.history.query import History
from probing.history.scanning.chosen import Chosen


@contextlib.contextmanager
def two_workers() -> Iterator[None]:
    """A cluster of Ray whose head does no work, where RAY_ADDRESS says."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, memory=1 << 30)
        os.environ["RAY_ADDRESS"] = cluster.address
        yield
    finally:
        cluster.shutdown()


def workers_of(engine: str) -> int:
    """How many take part beside who asks; none where that is this process."""
    if engine == "ray":
        import ray

        return sum(node["Alive"] and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes())
    if engine == "spark":
        from pyspark.sql import SparkSession

        context: Any = SparkSession.getActiveSession().sparkContext
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1
    return 0


def rows_of(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Rows without their order, floats to six digits."""
    return sorted(tuple(str(_plain(value)) for value in row.values()) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, (float, Decimal, int)) and not isinstance(value, bool):
        return "nan" if math.isnan(value) else float(f"{float(value):.6g}")
    return value


def main(engine: str, place: str, run: str, project: str) -> None:
    """Ask all of them."""
    history = History(place, chosen=Chosen(run, project, None, None))
    not_taken, wrong = [], {}
    cluster = two_workers() if engine == "ray" else contextlib.nullcontext()
    with cluster, contextlib.closing(started(engine, history.source)):
        for one in QUESTIONS:
            sql = put_in(one.sql, {}, one.parameters)
            try:
                found = rows_of(ask(history, engine, sql).to_pylist())
            except SqlError as error:
                not_taken.append((one.name, error.message))
                continue
            wanted = rows_of(history.query(sql, timeout_s=60).to_pylist())
            if found != wanted:
                wrong[one.name] = (found, wanted)
        workers = workers_of(engine)
    print(json.dumps({"workers": workers, "not_taken": dict(not_taken), "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
