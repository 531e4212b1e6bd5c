"""SQL over many ranks means what it says over all of their rows."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import probing
from probing.client.base import Process
from probing.client.transports import ByAddress
from probing.cluster.union.query import Union
from probing.errors import SqlError
from probing.reach.address import Address
from tests.harness.ranks import Ranks, assert_same, running_ranks

pytestmark = [pytest.mark.anypython, pytest.mark.slow]

RANKS = 8
ROWS = (400, 400, 0, 400, 64, 1000, 400, 8)  # one rank has recorded nothing

T, S = "python.torch_trace", "python.steps"
# Each with what the ranks do: M merge parts of aggregates, R rows, D distinct rows, K first rows.
QUERIES = (
    ("M", f"SELECT count(*) FROM {T}"),
    ("M", f"SELECT rank, count(*) AS n, count(duration) FROM {T} GROUP BY rank ORDER BY rank"),
    ("M", f"SELECT module, sum(duration_ns), min(step), max(duration) FROM {T} GROUP BY module"),
    ("M", f"SELECT avg(duration), avg(step), sum(duration) FROM {T} WHERE step >= 3"),
    ("M", f"SELECT stage, count(*) FILTER (WHERE failed) AS failed FROM {T} GROUP BY 1 ORDER BY 1"),
    ("M", f"SELECT stddev(duration), var_pop(duration), stddev_pop(step), variance(step) FROM {T}"),
    ("M", f"SELECT module, stddev_samp(duration) * 2 AS s FROM {T} GROUP BY module HAVING s > 0"),
    ("M", f"SELECT step % 3 AS third, count(*) FROM {T} GROUP BY third HAVING count(*) > 5"),
    ("M", f"SELECT arg_max(module, duration), arg_min(rank, duration), max(duration) FROM {T}"),
    ("M", f"SELECT rank, module, count(*) FROM {T} GROUP BY ALL ORDER BY ALL"),
    ("M", f"SELECT t.rank + 1, sum(t.depth) / count(*) AS m FROM {T} t GROUP BY t.rank ORDER BY m"),
    ("M", f"SELECT count(*), sum(loss), min(loss) FROM {S} WHERE rank IN (1, 3) AND step > 2"),
    ("M", f"SELECT count(*), sum(tokens), max(loss) FROM {S} WHERE rank = 99"),
    ("M", f"SELECT rank, count(*) FROM {S} WHERE step < 0 GROUP BY rank"),
    ("M", f"SELECT bool_or(failed), bool_and(training), any_value(root) FROM {T}"),
    ("M", f"SELECT host, pid, max(step) FROM {S} GROUP BY host, pid"),
    ("M", f"SELECT job, rank, count(*) FROM {S} GROUP BY job, rank ORDER BY rank"),
    ("M", f"SELECT count(*) FROM {S} WHERE job = 'another' OR job IS NULL"),
    ("M", f"SELECT upper(module) AS u, count(*) FROM {T} WHERE module LIKE '%attn' GROUP BY u"),
    ("R", f"SELECT * FROM {S} WHERE loss IS NULL"),
    ("R", f"SELECT module, step FROM {T} WHERE module = 'it''s \"odd\"' AND depth <> 2"),
    ("R", f"SELECT rank, pid IS NOT NULL FROM {T} WHERE rank >= 6 AND NOT failed"),
    ("R", f"SELECT quantile_cont(duration, 0.9), median(step) FROM {T}"),
    ("R", f"SELECT module, quantile_disc(duration_ns, [0.1, 0.5]) FROM {T} GROUP BY module"),
    ("R", f"SELECT rank, step, duration - avg(duration) OVER (PARTITION BY step) AS d FROM {S}"),
    ("R", f"SELECT step, rank, rank() OVER (PARTITION BY step ORDER BY duration DESC) r FROM {S}"
          " QUALIFY r = 1"),
    ("D", f"SELECT count(DISTINCT module), count(DISTINCT rank) FROM {T}"),
    ("D", f"SELECT rank, count(DISTINCT module) AS m, max(depth) FROM {T} GROUP BY rank"),
    ("D", f"SELECT DISTINCT module, stage FROM {T} WHERE step < 4"),
    ("D", f"SELECT DISTINCT lower(class) FROM {T} ORDER BY 1"),
    ("K", f"SELECT rank, step, duration FROM {S} ORDER BY duration DESC NULLS LAST LIMIT 7"),
    ("K", f"SELECT rank, step, loss AS l FROM {S} ORDER BY l, rank, step LIMIT 5 OFFSET 3"),
    ("K", f"SELECT * FROM {S} ORDER BY rank % 3, step, start_ns LIMIT 4"),
    ("R", f"SELECT a.rank, b.rank, a.step FROM {S} a JOIN {S} b USING (step)"
          " WHERE a.rank = 0 AND b.rank = 3 AND a.duration < b.duration"),
    ("R", f"SELECT t.module, s.loss FROM {T} t JOIN {S} s ON t.rank = s.rank AND t.step = s.step"
          " WHERE s.step BETWEEN 3 AND 6 AND t.module = 'head' AND s.loss > 0.5"),
    ("R", f"WITH slow AS (SELECT rank, avg(duration) AS a FROM {S} GROUP BY rank)"
          " SELECT rank, a > (SELECT median(a) FROM slow) * 1.5 AS is_slow FROM slow"),
    ("R", f"WITH m AS (SELECT step, max(duration) OVER (PARTITION BY step) AS most, duration, rank"
          f" FROM {S}) SELECT rank, count(*) FROM m WHERE most = duration GROUP BY rank"),
    ("R", f"SELECT rank, step FROM {S} WHERE duration > (SELECT avg(duration) * 1.5 FROM {S})"),
    ("R", f"SELECT rank, step FROM {S} WHERE rank = 1 AND step = (SELECT max(step) FROM {S} WHERE"
          " rank = 0)"),
    ("R", f"SELECT rank, count(*), (SELECT count(*) FROM {S}) FROM {S} WHERE rank = 0 GROUP BY 1"),
    ("R", f"SELECT rank, unnest([step, step + 1]) AS s FROM {S} ORDER BY s, rank LIMIT 6"),
    ("R", f"SELECT unnest(CASE WHEN failed THEN [step] END) AS s FROM {T} ORDER BY s LIMIT 4"),
    ("R", f"SELECT rank, count(*) FROM {T} t WHERE EXISTS (SELECT 1 FROM {S} s WHERE"
          " s.rank = t.rank AND s.step = t.step AND s.loss > 3) GROUP BY rank"),
    ("R", f"SELECT rank, step FROM {S} WHERE step < 2 UNION ALL SELECT rank, step FROM {T}"
          " WHERE step = 5 AND rank = 4"),
    ("R", f"SELECT rank FROM {S} EXCEPT SELECT rank FROM {T} WHERE failed AND step > 100"),
    ("R", f"SELECT string_agg(DISTINCT module, ',' ORDER BY module) FROM {T}"),
    ("R", f"SELECT step % 2 AS step, count(*) FROM {S} GROUP BY step ORDER BY step"),
    ("R", f"SELECT rank, list(step ORDER BY step DESC)[1:2] FROM {S} GROUP BY rank"),
    ("R", f"PIVOT {S} ON rank USING max(tokens) GROUP BY step ORDER BY step"),
    ("R", f"SELECT rank, sum(n) FROM (SELECT rank, step, count(*) AS n FROM {T} WHERE failed GROUP"
          " BY rank, step) GROUP BY GROUPING SETS ((rank), ())"),
)  # fmt: skip


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Eight ranks for all tests of this module; do not harm them."""
    with running_ranks(tmp_path_factory.mktemp("ranks"), RANKS, rows=ROWS) as found:
        yield found


@pytest.fixture(scope="module")
def one_database(ranks: Ranks) -> Iterator[duckdb.DuckDBPyConnection]:
    """All their rows in one database."""
    with ranks.concatenated() as database:
        yield database


@pytest.mark.parametrize(("way", "sql"), QUERIES)
def test_answers_are_those_of_one_database(
    ranks: Ranks, one_database: duckdb.DuckDBPyConnection, way: str, sql: str
) -> None:
    """A statement over eight ranks answers what one DuckDB over all their rows answers."""
    answer = Union(ranks.members()).query(sql)
    given = answer.to_arrow()
    expected = one_database.sql(sql).to_arrow_table()
    in_order = "ORDER BY" in sql.rpartition(")")[2]
    assert_same(given, expected, in_order=in_order, why=f"{sql}\n{answer.plan}")
    assert _way(answer.plan.is_merged, answer.plan.pushed) == way, answer.plan
    assert {o.state for o in answer.outcomes} <= {"answered"}


OF_ONE = (
    f"SELECT rank, host, pid, job, count(*) AS n FROM {S} GROUP BY ALL",
    f"SELECT s.rank, t.module FROM {S} s JOIN {T} t USING (rank, step) ORDER BY ALL LIMIT 5",
    f"SELECT rank, step, loss FROM {S} WHERE job = 'ranks' AND rank < 4 ORDER BY step",
    "SELECT job, rank FROM python.host_memory WHERE process_pid = pid",
    "SELECT rank, thread_name FROM python.threads WHERE is_main",
)


@pytest.mark.parametrize("sql", OF_ONE)
def test_a_statement_over_many_runs_over_one(ranks: Ranks, sql: str) -> None:
    """Of one process, by its files and by its agent, it answers what it answers over that one."""
    member = ranks.members()[3]
    expected = Union((member,)).query(sql).to_arrow()
    assert expected.num_rows
    local = probing.connect(member.endpoint)
    assert local.folder is not None
    agent = Process("", ByAddress(Address(path=local.folder.socket)), 60)
    for process in (local, agent):
        given = process.query(sql, timeout_s=60).to_arrow()
        assert_same(given, expected, in_order=True, why=sql)


def test_a_statement_that_names_none_of_them_means_what_it_meant(ranks: Ranks) -> None:
    """All columns of one process are those that it recorded; an error is the first one."""
    process = probing.connect(ranks.members()[3].endpoint)
    schema = process.query(f"FROM {S} LIMIT 1").to_arrow().schema
    assert not {"rank", "host", "pid", "job"} & set(schema.names)
    with pytest.raises(SqlError, match="no column rang"):
        process.query(f"SELECT rang, rank FROM {S}")


def _way(is_merged: bool, pushed: tuple[str, ...]) -> str:
    """What the ranks did, as a letter."""
    if is_merged:
        return "M"
    if "distinct rows" in pushed:
        return "D"
    return "K" if any("rows" in word for word in pushed) else "R"
