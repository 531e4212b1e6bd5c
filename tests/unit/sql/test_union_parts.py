"""Parts of parts: what some machines gave, made one on the way, changes no answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from probing.cluster.union.asking import TableInHand, run_leaf
from probing.cluster.union.inner_node import together
from probing.cluster.union.leaves import Leaf, Plan
from probing.cluster.union.partials import Partials
from probing.cluster.union.query import Union
from probing.messages.tree import TreeRequest, Way
from probing.messages.union import UnionRequest
from probing.ring.arrow_tables import schema_of
from probing.sql.engine import Engine, TableProvider
from probing.sql.process_columns import concatenated, with_ranks
from probing.tables import TABLES, Table
from tests.harness.ranks import assert_same

pytestmark = pytest.mark.anypython

T, S = "python.torch_trace", "python.steps"
STATEMENTS = (
    f"SELECT module, count(*), count(duration), sum(duration_ns), min(step), max(duration),"
    f" avg(duration), bool_or(failed), bit_and(step) FROM {T} GROUP BY module",
    f"SELECT stddev(duration), var_pop(duration), stddev_pop(step), variance(step) FROM {T}",
    f"SELECT module, rank % 2, stddev_samp(duration) * 2 AS s FROM {T} GROUP BY ALL HAVING s > 0",
    f"SELECT arg_max(module, duration), arg_min(rank, duration) FROM {T} WHERE duration > 1",
    f"SELECT count(*), sum(tokens), avg(loss), stddev(loss) FROM {S} WHERE rank = 99",
    f"SELECT rank, step, duration FROM {S} ORDER BY duration DESC NULLS LAST LIMIT 7",
    f"SELECT rank, step, loss AS l FROM {S} ORDER BY l, rank, step LIMIT 5 OFFSET 3",
)
MACHINES = 6
ROWS = 30


def rows_of(table: Table, rank: int) -> pa.Table:
    """What a rank has recorded; the last one nothing."""
    draw = random.Random(rank)
    schema = schema_of(with_ranks(table))
    makers = {
        pa.int64(): lambda: draw.choice([None, draw.randrange(40)]),
        pa.float64(): lambda: draw.choice([None, draw.random() * 10]),
        pa.bool_(): lambda: draw.random() < 0.5,
    }

    def value(field: pa.Field) -> object:
        named = {"rank": rank, "host": f"h{rank % 2}", "pid": rank, "step": draw.randrange(12)}
        if field.name in named:
            return named[field.name]
        return makers.get(field.type, lambda: draw.choice("abc"))()

    count = ROWS if rank + 1 < MACHINES else 0
    found = [{field.name: value(field) for field in schema} for _ in range(count)]
    plain = pa.schema(
        [f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in schema]
    )
    return concatenated(table, [pa.Table.from_pylist(found, schema=plain)])


def merged_in_twos(leaf: Leaf, parts: Sequence[pa.Table]) -> pa.Table:
    """The answers of all machines, two and two made one by what runs in a node server."""
    own = UnionRequest(
        members=(), table=leaf.table.full_name, columns=leaf.columns, sql=leaf.sql(added=None),
        timeout_s=60, max_bytes=1 << 30,
    )  # fmt: skip
    request = TreeRequest(
        own=own, nodes=(), way=Way(place="", fan_out=2), combine=leaf.combine,
        is_repeated=leaf.is_repeated,
    )  # fmt: skip
    parts = list(parts)
    while len(parts) > 1:
        parts = [together(request, parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0]


def answer(plan: Plan, tables: Sequence[pa.Table]) -> pa.Table:
    """What runs where the rows meet."""
    providers: list[TableProvider]
    if plan.is_merged:
        providers = [Partials(tables[0])]
    else:
        providers = [
            TableInHand(leaf.table, concatenated(leaf.table, [rows]))
            for leaf, rows in zip(plan.leaves, tables, strict=True)
        ]
    with Engine(providers).run(plan.root, timeout_s=60) as found:
        return found.to_arrow()


@pytest.mark.parametrize("sql", STATEMENTS)
def test_parts_of_parts_give_the_same_answer(sql: str) -> None:
    """A statement over six machines merged by twos answers as over all of their rows."""
    plan = Union(()).explain(sql)
    (leaf,) = plan.leaves
    parts = [run_leaf(leaf, rows_of(leaf.table, rank)) for rank in range(MACHINES)]
    merged = merged_in_twos(leaf, parts)
    if leaf.combine is not None:
        keys = [name for name in merged.column_names if name.startswith("k")]
        assert len(merged) == len(merged.select(keys).group_by(keys).aggregate([])) or not keys
        assert keys or len(merged) == 1
    tables = [t for t in TABLES if t.full_name in sql]
    whole = [
        TableInHand(t, concatenated(t, [rows_of(t, rank) for rank in range(MACHINES)]))
        for t in tables
    ]
    with Engine(whole).run(sql, timeout_s=60) as found:
        expected = found.to_arrow()
    given = answer(plan, [merged])
    in_order = "ORDER BY" in sql.rpartition(")")[2]
    assert_same(given.cast(expected.schema), expected, in_order=in_order, why=sql)
