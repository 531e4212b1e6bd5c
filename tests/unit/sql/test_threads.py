"""A statement gets more than one thread where its answer does not hang on the order of rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import probing
from probing.ring.arrow_tables import RecordedTable
from probing.ring.native import IN_C
from probing.rundir.folders import ProcessFolder
from probing.sql.database import IS_KNOWN
from probing.sql.engine import Engine
from probing.sql.scans import Scan
from probing.sql.threads import threads_for
from probing.tables import TORCH_TRACE
from tests.harness.large_rings import MODULES, large_ring
from tests.harness.name_lists import encode_names
from tests.harness.targets import DEADLINE_S

pytestmark = [
    pytest.mark.anypython,
    pytest.mark.skipif(IN_C is None, reason="the C part was not built"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ProcessFolder:
    """The run folder of an ended process with many rows."""
    folder = ProcessFolder(tmp_path_factory.mktemp("large"), 1, 1)
    large_ring(folder.ring(TORCH_TRACE.name), rows=600_000)
    folder.names.write_bytes(encode_names(f"blocks.{number}" for number in range(MODULES)))
    return folder


@pytest.mark.parametrize(
    ("sql", "threads"),
    [
        ("SELECT module, stage, count(*), avg(duration) FROM torch_trace GROUP BY ALL", 4),
        ("SELECT max(step) FROM torch_trace WHERE stage IN ('forward', 'backward')", 4),
        ("FROM torch_trace LIMIT 3", 4),
        ("SELECT max(duration) FILTER (isfinite(duration)) FROM torch_trace", 4),
        ("SELECT first(module) FROM torch_trace", 1),
        ('SELECT "list" (module) FROM torch_trace', 1),
        ("SELECT module.any_value() FROM torch_trace", 1),
        ("SELECT first/**/(module) FROM torch_trace", 1),
        ("SELECT first--\n(module) FROM torch_trace", 1),
        ("SELECT DISTINCT ON (module) module, step FROM torch_trace", 1),
        ("SELECT lag(step) OVER () FROM torch_trace", 1),
        ("SELECT step FROM torch_trace USING SAMPLE 3", 1),
    ],
)
def test_the_order_of_rows_decides(folder: ProcessFolder, sql: str, threads: int) -> None:
    """Whatever may take the row that comes first has one thread."""
    assert threads_for(sql, [Scan(RecordedTable(TORCH_TRACE, folder))], 4) == threads


def test_few_rows_have_one_thread(tmp_path: Path) -> None:
    """A small ring, or none, is not worth the start of another."""
    scan = Scan(RecordedTable(TORCH_TRACE, ProcessFolder(tmp_path, 1, 1)))
    assert threads_for("SELECT count(*) FROM torch_trace", [scan], 4) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT module, stage, count(*), max(duration) FROM torch_trace GROUP BY ALL ORDER BY 1",
        "SELECT seq, module, duration FROM torch_trace WHERE step % 97 = 0 LIMIT 1000",
        "SELECT a.step, count(*) FROM torch_trace a JOIN torch_trace b USING (seq)"
        " WHERE a.module = b.module GROUP BY ALL ORDER BY 1",
    ],
)
def test_threads_change_no_answer(folder: ProcessFolder, sql: str) -> None:
    """Several threads find the same rows, and those without an order in the ring's."""
    answers = []
    for threads in (1, 4):
        engine = Engine([RecordedTable(TORCH_TRACE, folder)], threads=threads)
        with engine.run(sql, timeout_s=60) as answer:
            answers.append(answer.to_pylist())
    assert answers[0] == answers[1]
    assert answers[0]


@pytest.mark.parametrize("name", ["steps", "memory_steps", "beside"])
def test_a_plot_of_the_page_may_have_threads(folder: ProcessFolder, name: str) -> None:
    """Statements that the page sends about very many steps take no row for coming first."""
    sql = (Path(probing.__file__).parent / "page" / "src" / "sql" / f"{name}.sql").read_text()
    scan = Scan(RecordedTable(TORCH_TRACE, folder))
    assert threads_for(sql.replace("$range", "true"), [scan], 4) == 4


_TOLD = """
import sys
from pathlib import Path
if sys.argv[2] == "whole":
    import duckdb
from probing.client.providers import over_record
from probing.ring.columns.batch import Batch
from probing.rundir.folders import ProcessFolder

stream = Batch.stream

def told(self, prefix="", places=None):
    print(*sorted(self.table.columns[at].name for at in places or ()))
    return stream(self, prefix, places)

Batch.stream = told
record = over_record(ProcessFolder(Path(sys.argv[1]), 1, 1), [], timeout_s=60)
sql = (
    "WITH m AS (SELECT max(step) AS most FROM torch_trace) SELECT count(*) AS rows,"
    " count(module) AS named, sum(duration) > 0 AS took FROM torch_trace, m WHERE step <= most"
)
with record.run_plain(sql, timeout_s=60) as answer:
    print([[list(column.values) for column in batch.columns] for batch in answer.batches()])
assert ("duckdb" in sys.modules) is (sys.argv[2] == "whole")
"""


@pytest.mark.skipif(not IS_KNOWN, reason="this engine asks its libraries for columns")
@pytest.mark.parametrize("how", ["alone", "whole"])
def test_each_reading_of_a_table_has_the_columns_that_it_needs(
    folder: ProcessFolder, how: str
) -> None:
    """A statement that looks at a table twice has only the step the first time."""
    argv = [sys.executable, "-c", _TOLD, str(folder.path), how]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    *readings, answer = done.stdout.splitlines()
    assert sorted(readings) == ["duration module step", "step"]
    assert answer == "[[[600000], [600000], [True]]]"
