"""What ranks are asked for a statement, and what they are never asked; no process is needed."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from probing.cluster.union.node_answer import answer
from probing.cluster.union.query import Union
from probing.cluster.union.statements import syntax
from probing.cluster.union.statements.leaves import Leaf
from probing.cluster.union.statements.syntax import Syntax
from probing.errors import SqlError, SqlRefused
from probing.messages import common as wire
from probing.messages.about.union import MEMBERS_KEY, UnionMember, UnionOutcomes, UnionRequest
from probing.rundir.folders import RunDirectory
from probing.script.own_tables import declaration
from probing.sql.process_columns import with_ranks
from probing.tables import TABLES_BY_NAME
from tests.harness.cards import card_of
from tests.harness.ring_writer import RingWriter

pytestmark = pytest.mark.anypython

S, T = "python.steps", "python.torch_trace"
ADDED = "rank, host, pid, job"
NOBODY = 2**22 + 1
"""The kernel gives no such number: a process that has ended."""
PLAN_TELLS_CONDITIONS = not duckdb.__version__.startswith("1.")
"""In words that the parser takes; else those of joins are not pushed."""


@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        (f"SELECT step FROM {S} WHERE loss > 1 AND random() < 2",
         f"SELECT {ADDED}, step, loss FROM {S} WHERE (loss > 1)"),
        (f"SELECT step FROM {S} WHERE to_timestamp(start_ns / 1e9) > now()",
         f"SELECT {ADDED}, step, start_ns FROM {S}"),
        (f"SELECT sum(loss) FROM {S} WHERE start_ns < epoch_ns(now())",
         f"SELECT {ADDED}, loss, start_ns FROM {S}"),
        (f"SELECT step FROM {S} WHERE loss > (SELECT avg(loss) FROM {S}) LIMIT 5",
         f"SELECT {ADDED}, step, loss FROM {S}"),
        (f"SELECT step FROM {S} ORDER BY random() LIMIT 5", f"SELECT {ADDED}, step FROM {S}"),
        (f"SELECT step, rank() OVER (ORDER BY loss) FROM {S} LIMIT 5",
         f"SELECT {ADDED}, step, loss FROM {S}"),
        (f"SELECT DISTINCT step FROM {S} LIMIT 5", f"SELECT {ADDED}, step FROM {S}"),
        (f"SELECT string_agg(module, ',') FROM {T}", f"SELECT {ADDED}, module FROM {T}"),
        (f"SELECT module, histogram(step) FROM {T} GROUP BY module",
         f"SELECT {ADDED}, step, module FROM {T}"),
        (f"SELECT histogram(module) FROM {T} LIMIT 1", f"SELECT {ADDED}, module FROM {T}"),
        (f"SELECT step, max(loss), geomean(loss) FROM {S} GROUP BY step",
         f"SELECT {ADDED}, step, loss FROM {S}"),
        (f"SELECT DISTINCT geometric_mean(loss) FROM {S}", f"SELECT {ADDED}, loss FROM {S}"),
        (f"SELECT step, weighted_avg(loss, lr) FROM {S} GROUP BY ALL LIMIT 5",
         f"SELECT {ADDED}, step, loss, lr FROM {S}"),
        (f"SELECT count(*), json_group_array(step) FROM {S} GROUP BY step",
         f"SELECT {ADDED}, step FROM {S}"),
        (f"SELECT count(*), json_group_array(1) FROM {S}", f"SELECT {ADDED} FROM {S}"),
        (f"SELECT unnest([loss, lr]) FROM {S} LIMIT 5", f"SELECT {ADDED}, loss, lr FROM {S}"),
        (f"SELECT regexp_split_to_table(module, '[.]') FROM {T} LIMIT 5",
         f"SELECT {ADDED}, module FROM {T}"),
        (f"SELECT DISTINCT step, random() FROM {S}", f"SELECT {ADDED}, step FROM {S}"),
        (f"SELECT module FROM {T} GROUP BY ALL LIMIT 5",
         f"SELECT DISTINCT {ADDED}, module FROM {T}"),
        (f"SELECT nullif(loss, lr), if(loss > 1, lr, loss + 1) FROM {S} LIMIT 5",
         f"SELECT {ADDED}, loss, lr FROM {S} LIMIT 5"),
        (f"SELECT DISTINCT split_part(module, '.', 1) FROM {T}",
         f"SELECT DISTINCT {ADDED}, module FROM {T}"),
        (f"SELECT formatReadableSize(seq), array_append([], seq) FROM {T} LIMIT 5",
         f"SELECT {ADDED}, seq FROM {T} LIMIT 5"),
        (f"SELECT sum(loss) / nullif(sum(lr), 0) FROM {S}",
         f"SELECT sum(loss) AS p0, sum(lr) AS p1 FROM {S}"),
        (f"SELECT count(DISTINCT step), sum(loss) FROM {S}",
         f"SELECT {ADDED}, step, loss FROM {S}"),
        (f"SELECT loss AS step FROM {S} WHERE step > 3 ORDER BY step LIMIT 2",
         f"SELECT {ADDED}, step, loss FROM {S} WHERE (step > 3)"),
        (f"SELECT count(*) FROM {S} TABLESAMPLE 10%", f"SELECT {ADDED} FROM {S}"),
        (f"SELECT step FROM {S} WHERE NOT (step BETWEEN 3 AND 5) ORDER BY step LIMIT 2",
         f"SELECT {ADDED}, step FROM {S} WHERE (NOT (step BETWEEN 3 AND 5))"
         " ORDER BY step LIMIT 2"),
        (f"SELECT a.step FROM {S} a JOIN {S} b USING (step) WHERE a.loss > 1 AND b.loss > 2",
         f"SELECT {ADDED}, step, loss FROM {S}"
         + " WHERE ((loss > 1.0)) OR ((loss > 2.0))" * PLAN_TELLS_CONDITIONS),
        (f"SELECT count(*) FROM (SELECT 1 FROM {S} LIMIT 5)", f"SELECT {ADDED} FROM {S}"),
        (f"SELECT a.step FROM {S} a JOIN {S} b USING (step) WHERE a.loss > 1",
         f"SELECT {ADDED}, step, loss FROM {S}"),
        (f"SELECT count(*) FILTER (WHERE failed) FROM {T} WHERE module = 'it''s'",
         f"SELECT count(*) FILTER (WHERE failed) AS p0 FROM {T} WHERE (module = 'it''s')"),
    ],
)  # fmt: skip
def test_only_what_cannot_change_the_answer_is_pushed(sql: str, asked: str) -> None:
    """Conditions, parts and first rows go to the ranks only where that is certain."""
    assert [leaf.sql(added=None) for leaf in Union(()).explain(sql).leaves] == [asked]


def test_a_rank_is_asked_with_its_own_values() -> None:
    """A process that knows nothing of the added columns gets their values in the statement."""
    (leaf,) = Union(()).explain(f"SELECT rank, max(loss) FROM {S} GROUP BY rank").leaves
    added = {"rank": None, "host": "it's", "pid": 7, "job": None}
    assert leaf.sql(added=added, lacking=frozenset({"loss"})) == (
        "SELECT rank AS k0, max(loss) AS p1 FROM (SELECT CAST(NULL AS BIGINT) AS rank,"
        f" 'it''s' AS host, CAST(7 AS BIGINT) AS pid, CAST(NULL AS VARCHAR) AS job,"
        f" CAST(NULL AS DOUBLE) AS loss, * FROM {S})"
        " AS steps GROUP BY 1"
    )


def test_a_table_keeps_its_own_pid() -> None:
    """A table with a column pid means by it what it means for one process."""
    names = [column.name for column in with_ranks(TABLES_BY_NAME["dataloaders"]).columns]
    assert names[:4] == ["rank", "host", "process_pid", "job"]
    assert names.count("pid") == 1


def test_statements_are_judged_as_for_one_process() -> None:
    """What writes, or names what is not there, is refused before anybody is asked."""
    with pytest.raises(SqlRefused):
        Union(()).query("CREATE TABLE t (i INT)")
    with pytest.raises(SqlError, match="no column stepz") as caught:
        Union(()).query(f"SELECT stepz FROM {S}")
    assert caught.value.suggestion == "step"
    with pytest.raises(SqlError, match="no table stepz"):
        Union(()).query("FROM python.stepz")


def test_functions_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same in each database, and to list them takes longer than to make one."""
    first = Syntax()
    monkeypatch.setattr(syntax, "_FUNCTIONS", "SELECT no FROM nowhere")
    second = Syntax()
    assert "sum" in second.aggregates
    assert second.aggregates == first.aggregates
    assert second.is_scalar("nullif")
    first.close()
    second.close()


def test_nobody_is_an_empty_database() -> None:
    """Over no process at all, a statement has the columns and types that it has over many."""
    rows = Union(()).query(f"SELECT count(*) AS n, sum(step) AS s FROM {S}").to_pylist()
    assert rows == [{"n": 0, "s": None}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM sqlite_master",
        "SELECT viewname AS name FROM pg_views",
        "SELECT relname AS name FROM pg_catalog.pg_class",
        "SELECT table_name AS name FROM information_schema.tables",
    ],
)
def test_every_way_to_ask_for_the_tables_is_answered(sql: str) -> None:
    """A database of many processes has the tables of one, whoever asks for them."""
    assert {"steps", "collectives"} <= {row["name"] for row in Union(()).query(sql).to_pylist()}


def test_a_leaf_without_columns_counts_rows() -> None:
    """Rows of which nothing is read are still there."""
    leaf = Leaf(table=TABLES_BY_NAME["steps"], columns=())
    assert (
        leaf.sql(added={"rank": 1, "host": "h", "pid": 2, "job": None})
        == f"SELECT 1 AS one FROM {S}"
    )


def test_any_word_may_be_the_name_of_a_table() -> None:
    """A script's own table may be called as SQL's words are, and so may its columns."""
    names = {"select": int, "n": int}
    own = declaration("order", names, doc="", rows=64, text_bytes=64, origin="script").declared
    leaf = Leaf(table=own, columns=("select", "n"), where="rank = 7", reads_added=True)
    added = {"rank": 7, "host": "a", "pid": 1, "job": None}
    engine = duckdb.connect()
    engine.execute('CREATE SCHEMA python; CREATE TABLE python."order" AS SELECT 1 AS "select"')
    sql = leaf.sql(added=added, lacking=frozenset({"n"}))
    assert engine.sql(sql).fetchall() == [(1, None)]


def test_a_node_answers_for_ranks_of_which_some_have_not_declared_a_table(tmp_path: Path) -> None:
    """Those give no rows, and a note; the others' rows are there."""
    directory = RunDirectory(tmp_path / "home")
    mine = declaration("mine", {"n": int}, doc="", rows=64, text_bytes=64, origin="script").declared
    members = []
    for rank in range(2):
        folder = directory.create_folder(NOBODY, 77 + rank)
        folder.write_card(card_of(NOBODY, 77 + rank, rank=rank))
        key = folder.path.name
        members.append(UnionMember(key=key, rank=rank, host="a", pid=NOBODY, job=None))
        if rank == 0:
            ring = RingWriter(mine, capacity=64)
            ring.write(n=3)
            ring.save(folder.ring("mine"))
    sql = "SELECT rank, sum(n) AS n FROM python.mine GROUP BY rank"
    asked = UnionRequest(
        members=tuple(members), table="python.mine", columns=("n",), sql=sql, timeout_s=60,
        max_bytes=1 << 20,
    )  # fmt: skip
    rows = answer(asked, directory)
    assert rows.to_pylist() == [{"rank": 0, "n": 3}]
    told = wire.decode(UnionOutcomes, rows.schema.metadata[MEMBERS_KEY])
    assert [one.state for one in told.members] == ["answered"] * 2
    assert told.members[1].notes == ("there is no table python.mine there",)
