"""An answer streams once, can be kept, is taken by other libraries, and is never half of one."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import importlib.util
import io
import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from probing import dbapi
from probing.errors import MissingLibrary, ProbingError, Unreachable, UsageError
from probing.messages.common import TRUNCATED_KEY
from probing.sql.answer import Answer
from tests.harness.targets import ROOT

TABLE = pa.table({"n": pa.array([1, 2, None], pa.int64()), "s": ["a", "<b>", None]})


class TableSource:
    """A source over a table, which notes how often it is closed."""

    def __init__(self, table: pa.Table = TABLE, truncated: str | None = None) -> None:
        self.schema = table.schema
        self.truncated = truncated
        self.closed = 0
        self._batches = table.to_batches(max_chunksize=2)

    def read(self) -> pa.RecordBatch | None:
        """The next batch."""
        return self._batches.pop(0) if self._batches else None

    def close(self) -> None:
        """Count it."""
        self.closed += 1


def ipc_stream(table: pa.Table = TABLE, truncated: str | None = None) -> bytes:
    """What an agent sends."""
    schema = table.schema
    if truncated:
        schema = schema.with_metadata({TRUNCATED_KEY: truncated.encode()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write_batch(batch)
    return sink.getvalue()


STREAM = ipc_stream()


def test_an_answer_is_streamed_once() -> None:
    """A second stream is an error that says what to do instead; the source is let go."""
    source = TableSource()
    answer = Answer(source)
    assert [batch.num_rows for batch in answer.batches()] == [2, 1]
    assert source.closed == 1
    with pytest.raises(UsageError, match="read already"):
        list(answer.batches())


def test_a_kept_answer_can_be_read_again() -> None:
    """After `to_arrow` everything works as often as one likes."""
    answer = Answer(TableSource())
    assert answer.to_arrow().equals(TABLE)
    assert answer.to_arrow() is answer.to_arrow()
    assert sum(batch.num_rows for batch in answer.batches()) == 3
    assert answer.to_pylist()[0] == {"n": 1, "s": "a"}
    assert answer.columns == ["n", "s"]


def test_times_are_python_s_own() -> None:
    """Datetimes whether pandas is there or not, in DB-API, too; a text where Python has none."""
    sql = (
        "SELECT make_timestamp_ns(1700000000123456789) AS a, 'infinity'::TIMESTAMP AS b,"
        " '-infinity'::DATE AS c, '20000-01-01'::DATE AS d,"
        " [{'t': make_timestamp_ns(1234567), 'n': 1}] AS f, MAP{DATE 'infinity': NULL::DATE} AS g"
    )
    table = duckdb.connect().sql(sql).to_arrow_table()
    table = table.append_column("e", pa.array([45_296_123_456_789], pa.time64("ns")))
    nanoseconds = dt.datetime(2023, 11, 14, 22, 13, 20, 123456)  # noqa: DTZ001 - as SQL has it
    (row,) = Answer(TableSource(table)).rows()
    assert row == {
        "a": nanoseconds, "b": "infinity", "c": "-infinity", "d": "20000-01-01",
        "f": [{"t": dt.datetime(1970, 1, 1, 0, 0, 0, 1234), "n": 1}],  # noqa: DTZ001
        "g": [("infinity", None)],
        "e": dt.time(12, 34, 56, 123456),
    }  # fmt: skip
    assert type(row["a"]) is dt.datetime

    class Asked:
        """What a connection asks."""

        def query(self, _: str) -> Answer:
            """The same rows."""
            return Answer(TableSource(table))

    assert dbapi.Connection(Asked()).execute(sql).fetchall() == [tuple(row.values())]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("'-infinity'::TIMESTAMP_NS", "-infinity"),
        ("['infinity'::TIMESTAMP_NS]", ["infinity"]),
        ("'infinity'::TIMESTAMP_S", "infinity"),
        ("'290000-02-29 01:02:03'::TIMESTAMP_S", "290000-02-29 01:02:03"),
        ("'290000-01-01 00:00:00.25+00'::TIMESTAMPTZ", "290000-01-01 00:00:00.250000+00:00"),
        ("'5000000-12-31'::DATE", "5000000-12-31"),
        ("'290000-01-01 (BC)'::DATE", "-289999-01-01"),
        ("[union_value(t := make_timestamp_ns(1000))]", [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]),  # noqa: DTZ001
    ],
)
def test_times_that_python_has_not_are_texts(sql: str, value: object) -> None:
    """Also those that Arrow has no text for; and what a union has is of no other library."""
    table = duckdb.connect().sql(f"SELECT unnest([{sql}, NULL]) AS a").to_arrow_table()
    rows = Answer(TableSource(table)).rows()
    assert rows == [{"a": value}, {"a": None}]
    if isinstance(value, list):
        assert type(rows[0]["a"][0]) is type(value[0])


def test_other_libraries_take_an_answer_as_it_is() -> None:
    """DuckDB and pyarrow read it by the Arrow C stream protocol, more than once."""
    answer = Answer(TableSource())
    assert pa.table(answer).equals(TABLE)
    assert pa.schema(answer).equals(TABLE.schema)
    with duckdb.connect() as connection:
        for _ in range(2):
            assert connection.from_arrow(answer).aggregate("sum(n)").fetchall() == [(3,)]


def test_an_answer_is_a_list_of_rows() -> None:
    """A loop, its length and `rows` give dictionaries, again and again."""
    answer = Answer(TableSource())
    assert [row["n"] for row in answer] == [row["n"] for row in answer.rows()]
    assert len(answer) == len(answer.rows()) == answer.arrow().num_rows
    assert dict(next(iter(answer))) == answer.rows()[0]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_is_made_where_its_library_is(library: str) -> None:
    """`df` and `pl`; where the library is missing, the error says how to get it."""
    answer = Answer(TableSource())
    make = answer.df if library == "pandas" else answer.pl
    if importlib.util.find_spec(library) is None:
        with pytest.raises(MissingLibrary, match=f"{library} is not installed") as caught:
            make()
        assert caught.value.help == f"`pip install {library}`"
        return
    frame = importlib.import_module(library).DataFrame(answer)
    assert list(frame.columns) == list(make().columns) == answer.columns
    assert len(frame) == len(make()) == len(answer)


def test_a_closed_answer_lets_go_once() -> None:
    """Closing is idempotent, and leaving the block closes."""
    source = TableSource()
    with Answer(source) as answer:
        answer.close()
    assert source.closed == 1


def test_a_forgotten_answer_lets_go() -> None:
    """Nothing is held by an answer that nobody holds."""
    source = TableSource()
    Answer(source)
    assert source.closed == 1


def test_an_answer_shows_itself() -> None:
    """The representation names columns and types; the notebook's table is escaped and says more."""
    answer = Answer(TableSource(truncated="It was cut."))
    assert repr(answer) == "<Answer: not read yet; n int64, s string>"
    page = answer._repr_html_()
    assert ">&lt;b&gt;</td>" in page
    assert "><i>NULL</i></td>" in page
    assert "<p>It was cut.</p>" in page
    assert repr(answer).startswith("<Answer: 3 rows;")


def test_a_long_answer_shows_its_first_rows() -> None:
    """A notebook is not flooded."""
    page = Answer(TableSource(pa.table({"n": range(1000)})))._repr_html_()
    assert page.count("<tr>") == 101
    assert "1,000 rows, 100 shown" in page


@pytest.mark.parametrize("given_as", [bytes, io.BytesIO])
def test_an_ipc_stream_gives_its_rows(given_as: type) -> None:
    """Rows, types and the reason of a cut arrive; the metadata that carried it does not."""
    answer = Answer.from_ipc(given_as(ipc_stream(truncated="It was cut.")))
    assert answer.truncated == "It was cut."
    assert answer.to_arrow().equals(TABLE)
    assert not answer.schema.metadata
    assert Answer.from_ipc(STREAM).truncated is None


def test_an_ipc_stream_without_rows_keeps_its_types() -> None:
    """Zero rows are an answer."""
    answer = Answer.from_ipc(ipc_stream(TABLE.slice(0, 0)))
    assert answer.to_arrow().schema.equals(TABLE.schema)
    assert answer.to_arrow().num_rows == 0


def test_a_stream_that_breaks_off_is_an_error() -> None:
    """No beginning of an answer, of whatever length, passes for the whole."""
    for length in range(len(STREAM)):
        with pytest.raises(Unreachable, match="is not whole"):
            Answer.from_ipc(STREAM[:length]).to_arrow()


@given(st.lists(st.tuples(st.integers(0, len(STREAM) - 1), st.integers(1, 255)), min_size=1))
@example([(92, 128)])  # a column's name that is not UTF-8
@example([(71, 14)])  # a type that pyarrow has no class for
def test_a_garbled_stream_gives_rows_or_our_error(flips: list[tuple[int, int]]) -> None:
    """Any bytes at all give an answer or a ProbingError, nothing else."""
    data = bytearray(STREAM)
    for at, mask in flips:
        data[at] ^= mask
    with contextlib.suppress(ProbingError):
        Answer.from_ipc(bytes(data)).to_arrow()


class BrokenConnection(io.BytesIO):
    """A connection that is reset after the first half."""

    def read(self, size: int | None = -1) -> bytes:
        """As much as there is, then an error of the socket."""
        data = super().read(min(size or 0, 7))
        if not data:
            raise ConnectionResetError("reset by peer")
        return data


def test_a_connection_that_breaks_is_an_error() -> None:
    """What the socket raises becomes ours; short reads are no end."""
    stream = BrokenConnection(STREAM[:200])
    with pytest.raises(Unreachable, match="reset by peer"):
        Answer.from_ipc(stream).to_arrow()
    assert Answer.from_ipc(BrokenConnection(STREAM)).to_arrow().equals(TABLE)


MUTATE = """
import io, random, sys
import pyarrow as pa
from probing.sql.answer import Answer
from probing.errors import Unreachable
words = pa.array(["forward", "backward", None, "step"] * 8).dictionary_encode()
table = pa.table({
    "n": pa.array(range(32)), "x": pa.array([None, 0.5] * 16), "name": words,
    "text": pa.array(["a", "ü" * 20] * 16), "parts": pa.array([[1, 2], None, [], [3]] * 8),
})
out = io.BytesIO()
with pa.ipc.new_stream(out, table.schema) as writer:
    writer.write_table(table)
data, draw, whole = out.getvalue(), random.Random(3), 0
for _ in range(int(sys.argv[1])):
    bad = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(bad))
        bad[at] = draw.choice((bad[at] ^ 1 << draw.randrange(8), 255, 0, 127))
    try:
        whole += Answer.from_ipc(bytes(bad)).to_arrow().num_rows >= 0
        Answer.from_ipc(bytes(bad)).to_pylist()
    except Unreachable as error:
        assert "not whole" in str(error), error
print("read", whole > 100)
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [1_500, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_a_mutated_answer_never_kills_its_reader(count: int) -> None:
    """It is read, or said not to be whole: every offset in it is looked at before it is used."""
    argv = [sys.executable, "-c", MUTATE, str(count)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "read True\n"
