"""From a process's batches to stdout or a file: fan-out, limits, formats, whole files."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from probing.cli.ask import answering
from probing.cli.ask.answering import Question, answer, write_rows
from probing.cli.ask.feed import Feed
from probing.cli.ask.replies import show
from probing.cli.output.files import write_file
from probing.cli.output.terminal import PLAIN, write_json
from probing.cli.prompt.prompt import Prompt
from probing.cli.render.cells import json_texts, plain_texts, short_texts
from probing.cli.render.rows import WRITERS, arrow_file_chunks, unique_names
from probing.cli.target import Target
from probing.cli.time_limit import within
from probing.client.base import Process
from probing.errors import (
    BadToken,
    NoSuchProcess,
    ProbingError,
    QueryTimedOut,
    UsageError,
)
from probing.messages.common import Card, Pong
from probing.messages.frozen import dataclass
from probing.sql.answer import Answer
from tests.harness.targets import DEADLINE_S, wait_until

pytestmark = pytest.mark.anypython


class FakeSource:
    """Batches out of a list; what is callable is called instead of being given."""

    def __init__(self, schema: pa.Schema, batches: list[Any], truncated: str | None = None) -> None:
        self.schema = schema
        self.truncated = truncated
        self._batches = iter(batches)
        self.is_closed = False

    def read(self) -> pa.RecordBatch | None:
        """The next batch."""
        batch = next(self._batches, None)
        return batch() if callable(batch) else batch

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True


class FakeProcess:
    """A process that answers with what it was given."""

    def __init__(self, label: str, source: FakeSource | ProbingError, note: str = "") -> None:
        self.label = label
        self._source = source
        self._note = note

    def query(
        self, sql: str, *, timeout_s: float | None = None, max_rows: int | None = None
    ) -> Answer:
        """The answer, or the error."""
        if isinstance(self._source, ProbingError):
            raise self._source
        return Answer(self._source)

    _query_plain = query

    def status(self) -> Any:
        """Something to ask for."""
        if isinstance(self._source, ProbingError):
            raise self._source
        return Pong(pid=7)

    def notes(self) -> list[str]:
        """One note, if any."""
        return [self._note] if self._note else []


@dataclass(frozen=True, kw_only=True)
class FakeTarget(Target):
    """A target whose endpoints are fakes."""

    processes: dict[str, FakeProcess]

    def connect(self, endpoint: str) -> Any:
        """The fake of that name."""
        return self.processes[endpoint]


def aim(timeout_s: float = 30.0, **sources: FakeSource | ProbingError) -> FakeTarget:
    """A target with one endpoint for each keyword."""
    processes = {name: FakeProcess(name, source) for name, source in sources.items()}
    return FakeTarget(endpoints=tuple(sources), timeout_s=timeout_s, processes=processes)


def source_of(table: pa.Table, truncated: str | None = None) -> FakeSource:
    """A source that gives a table."""
    return FakeSource(table.schema, table.to_batches(), truncated)


def question(form: str = "jsonl", output: str | None = None, max_rows: int = 0) -> Question:
    """A question whose SQL does not matter."""
    return Question(sql="SELECT 1", form=form, output=output, max_rows=max_rows, screen=PLAIN)


def test_one_endpoint_has_no_extra_column(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The rows of one process come as they are, and a note says what is missing."""
    code = answer(aim(a=source_of(pa.table({"x": [1, 2]}), "cut at 2 rows.")), question())
    out, err = capfdbinary.readouterr()
    assert (code, out) == (0, b'{"x":1}\n{"x":2}\n')
    assert err == b"note: cut at 2 rows.\n"


def test_one_endpoint_that_fails_raises() -> None:
    """With one endpoint its error is the command's."""
    with pytest.raises(NoSuchProcess):
        answer(aim(a=NoSuchProcess("a")), question())


def test_an_endpoint_may_fail_midway(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Rows that came before an error are written, and the error is the command's."""

    def fail() -> None:
        raise QueryTimedOut(3)

    table = pa.table({"x": [1]})
    with pytest.raises(QueryTimedOut):
        answer(aim(a=FakeSource(table.schema, [*table.to_batches(), fail])), question("csv"))
    assert capfdbinary.readouterr().out == b"x\n1\n"


def test_a_table_counts_what_it_does_not_show(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The table view shows the first rows and says how many more there are."""
    rows = FakeSource(
        pa.schema([("x", pa.int64())]),
        [pa.record_batch({"x": list(range(start, start + 4))}) for start in range(0, 12, 4)],
    )
    answer(aim(a=rows), question("table", max_rows=6))
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert [line.strip() for line in lines[2:]] == [
        *"012345",
        "… 6 more rows; -n 0 shows all",
    ]


def test_a_prompt_names_what_shows_all(capfd: pytest.CaptureFixture[str]) -> None:
    """Its own `%sql` has no options."""
    rows = FakeSource(pa.schema([("x", pa.int64())]), [pa.record_batch({"x": list(range(50))})])
    target = aim(a=rows)
    prompt = Prompt(target, target.connect("a"))
    prompt._sql("FROM steps")
    assert "… 10 more rows; `query -n 0` in a shell shows all" in capfd.readouterr().out


def test_a_statement_that_cannot_be_stopped_ends_with_its_limit() -> None:
    """When the engine does not come back, the reader still gets the error of the time limit."""
    release = threading.Event()
    stuck = FakeSource(pa.schema([("x", pa.int64())]), [lambda: release.wait(60) and None])
    feed = Feed(aim(a=stuck), "a", "SELECT 1", max_rows=None)
    try:
        assert feed.schema().names == ["x"]
        with pytest.raises(QueryTimedOut, match=r"limit of 0\.05 s"), within(0.05, grace_s=0):
            next(feed.batches())
    finally:
        release.set()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_alarm_that_was_swallowed_comes_again_without_a_word(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Where its error cannot be raised, as in a destructor, nothing of it is printed."""

    class Slow:
        def __del__(self) -> None:
            time.sleep(0.3)

    with pytest.raises(QueryTimedOut), within(0.05, grace_s=0):
        _make_and_wait(Slow)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_drawing_a_long_table_takes_nothing_of_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement has ended: what is left is this command's own work."""
    set_timer, draw = signal.setitimer, answering._drawn
    timers: list[tuple[tuple[float, ...], tuple[float, float]]] = []
    drawn: list[tuple[int, tuple[float, float]]] = []

    def set_and_tell(which: int, *seconds: float) -> tuple[float, float]:
        timers.append((seconds, set_timer(which, *seconds)))
        return timers[-1][1]

    def draw_and_tell(*how: Any) -> str:
        drawn.append((len(timers), signal.getitimer(signal.ITIMER_REAL)))
        return draw(*how)

    monkeypatch.setattr(signal, "setitimer", set_and_tell)
    monkeypatch.setattr(answering, "_drawn", draw_and_tell)
    batch = pa.record_batch({"x": list(range(400_000)), "y": ["y"] * 400_000})
    place = tmp_path / "rows.txt"
    question = Question(sql="", form="table", output=str(place), max_rows=0, screen=PLAIN)
    with within(DEADLINE_S, grace_s=0):
        write_rows(batch.schema, [batch], question)
    ((place_of_it, while_drawn),) = drawn
    (disarmed, was_left), (armed_again, _) = timers[place_of_it - 1 : place_of_it + 1]
    assert (disarmed, while_drawn) == ((0,), (0.0, 0.0))
    assert was_left[0] > 0
    assert armed_again == was_left
    assert place.read_text().splitlines()[-1] == f"{399_999:>6}  y"


@pytest.mark.slow
def test_writing_without_an_end_ends_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is formatted and written to where nobody reads counts, and no line is left half."""
    batch = pa.record_batch({"x": list(range(1000))})
    endless = FakeSource(batch.schema, [])
    endless._batches = itertools.repeat(batch)
    with tempfile.TemporaryFile("w+") as file:
        monkeypatch.setattr(sys, "stdout", file)
        with pytest.raises(QueryTimedOut, match=r"limit of 0\.2 s"):
            answer(aim(timeout_s=0.2, a=endless), question())
        file.seek(0)
        lines = file.read().splitlines()
    assert len(lines) > 0
    assert lines[-1] == '{"x":999}'


def test_a_slow_reader_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long as a pipe is full, the time limit stands still."""
    table = pa.table({"x": ["x" * 1000] * 1000})  # more than a pipe holds
    reading, writing = os.pipe()
    read: list[bytes] = []

    def take() -> None:
        with os.fdopen(reading, "rb") as pipe:
            threading.Event().wait(1.5)  # longer than the limit and its grace
            read.append(pipe.read())

    reader = threading.Thread(target=take)
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        reader.start()
        assert answer(aim(timeout_s=0.2, a=source_of(table)), question()) == 0
    reader.join()
    assert len(read[0].splitlines()) == 1000


def test_an_answer_of_any_size_waits_for_its_reader() -> None:
    """No more than a few batches are fetched ahead of the reader."""
    fetched = []

    def batch(number: int) -> Callable[[], pa.RecordBatch]:
        def fetch() -> pa.RecordBatch:
            fetched.append(number)
            return pa.record_batch({"x": [number]})

        return fetch

    source = FakeSource(pa.schema([("x", pa.int64())]), [batch(n) for n in range(100)])
    feed = Feed(aim(a=source), "a", "", max_rows=None)
    feed.schema()
    batches = feed.batches()
    next(batches)
    in_hand = 6  # one read, four in the queue, one that waits for a place there
    wait_until(lambda: len(fetched) >= in_hand, "the queue is full")
    assert len(fetched) == in_hand
    assert sum(b.num_rows for b in batches) == 99
    assert source.is_closed


def test_each_endpoint_has_its_heading(capfd: pytest.CaptureFixture[str]) -> None:
    """What has no rows is printed under a heading per endpoint; JSON names them in a list."""
    table = pa.table({"x": [1]})
    target = aim(a=source_of(table), b=BadToken(missing=False), c=source_of(table))
    code = show(target, "text", _status_of, lambda card, _: f"pid {card.pid}")
    out, err = capfd.readouterr()
    assert out == "== a ==\npid 7\n== c ==\npid 7\n"
    assert err.startswith("error: b: the token is wrong.\n")
    assert code == BadToken.exit_code
    code = show(target, "json", _status_of, lambda *_: "", _pid_of)
    assert json.loads(capfd.readouterr().out) == [
        {"endpoint": "a", "answer": 7},
        {"endpoint": "c", "answer": 7},
    ]
    assert code == BadToken.exit_code


def _status_of(process: Process) -> Card:
    return process.status()


def _pid_of(card: Card) -> int:
    return card.pid


def test_notes_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """How an answer came about is said beside it, not in it."""
    fake = FakeProcess("a", source_of(pa.table({"x": [1]})), note="read from outside")
    target = FakeTarget(endpoints=("a",), processes={"a": fake})
    assert show(target, "text", _status_of, lambda *_: "text") == 0
    assert capfd.readouterr() == ("text\n", "note: read from outside\n")


def chunks_of(*parts: bytes, error: Exception | None = None) -> Iterator[bytes]:
    """Chunks, then perhaps an error."""
    yield from parts
    if error is not None:
        raise error


def test_a_file_is_there_whole(tmp_path: Path) -> None:
    """A file takes its name, and replaces an older one, only when it is complete."""
    path = tmp_path / "x.csv"
    path.write_bytes(b"old")
    write_file(str(path), chunks_of(b"a", b"b"))
    assert path.read_bytes() == b"ab"
    with pytest.raises(QueryTimedOut):
        write_file(str(path), chunks_of(b"c", error=QueryTimedOut(1)))
    assert path.read_bytes() == b"ab"
    assert os.listdir(tmp_path) == ["x.csv"]


def test_a_link_and_a_device_stay_what_they_are(tmp_path: Path) -> None:
    """A link is written through, and a device is never replaced by a file."""
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "real.csv")
    write_file(str(link), chunks_of(b"a"))
    assert link.is_symlink()
    assert (tmp_path / "real.csv").read_bytes() == b"a"
    write_file("/dev/null", chunks_of(b"a"))
    assert not Path("/dev/null").is_file()


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """A missing folder and a full disk are said in a sentence, and leave nothing behind."""
    with pytest.raises(UsageError, match=r"cannot write .*/no/x: No such file or directory\."):
        write_file(str(tmp_path / "no" / "x"), chunks_of(b"a"))
    with pytest.raises(UsageError, match=r"cannot write /dev/full: No space left on device\."):
        write_file("/dev/full", chunks_of(b"a" * 100_000))


MIXED = pa.table(
    {
        "i": pa.array([2**62, None], pa.int64()),
        "f": pa.array([0.1, math.inf], pa.float64()),
        "s": pa.array(['"quoted", \n', None], pa.string()),
        "e": pa.array(["one", "two"]).dictionary_encode(),
        "b": pa.array([True, None]),
        "n": pa.nulls(2),
        "sum": pa.array([Decimal(10**30), None], pa.decimal128(38, 0)),
        "money": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "raw": pa.array([b"\x00\xff", None], pa.binary()),
        "at": pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns")),
        "utc": pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "Europe/Berlin")),
        "day": pa.array([19_000, None], pa.date32()),
        "clock": pa.array([3_661_000_000, None], pa.time64("us")),
        "age": pa.array([pa.MonthDayNano([14, -3, 1_500_000_000]), None]),
        "took": pa.array([-90_000_000_000, None], pa.duration("ns")),
        "list": pa.array([[1, None], None], pa.list_(pa.int64())),
        "deep": pa.array([{"a": math.nan, "at": [5]}, None], pa.struct(
            [("a", pa.float64()), ("at", pa.list_(pa.timestamp("ns")))]
        )),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)  # fmt: skip

MIXED_JSON = {
    "i": 2**62,
    "f": 0.1,
    "s": '"quoted", \n',
    "e": "one",
    "b": True,
    "n": None,
    "sum": 10**30,
    "money": "1.50",
    "raw": "AP8=",
    "at": "2023-11-14T22:13:20.123456789",
    "utc": "2023-11-14T22:13:20.000000Z",
    "day": "2022-01-08",
    "clock": "01:01:01.000000",
    "age": "P14M-3DT1.5S",
    "took": "PT-90S",
    "list": [1, None],
    "deep": {"a": "NaN", "at": ["1970-01-01 00:00:00.000000005"]},
    "map": {"k": 1},
}


def written(form: str, table: pa.Table, max_chunksize: int | None = None) -> bytes:
    """A table in a format, batch by batch."""
    batches = table.to_batches(max_chunksize=max_chunksize)
    return b"".join(WRITERS[form](table.schema, batches))


def test_json_keeps_every_value() -> None:
    """Every type has its one form in JSON; a number that JSON lacks is a text that parsers take."""
    first, second = (json.loads(line) for line in written("jsonl", MIXED).splitlines())
    assert first == MIXED_JSON
    assert second == {**dict.fromkeys(MIXED_JSON), "e": "two", "f": "Infinity"}
    assert json.loads(written("json", MIXED)) == [first, second]


def test_numbers_that_json_lacks_are_no_nulls(capfd: pytest.CaptureFixture[str]) -> None:
    """What was measured stays apart from what was not, in rows and in every other answer."""
    values = [math.nan, math.inf, -math.inf, 1e300, None]
    rows = written("json", pa.table({"x": pa.array(values, pa.float64())}))
    write_json({"x": values, "deep": [{"x": (math.nan,)}]})
    shown = json.loads(capfd.readouterr().out, parse_constant=pytest.fail)
    texts = ["NaN", "Infinity", "-Infinity", 1e300, None]
    assert [row["x"] for row in json.loads(rows, parse_constant=pytest.fail)] == texts
    assert shown == {"x": texts, "deep": [{"x": ["NaN"]}]}
    for value, text in zip(values[:3], texts[:3], strict=True):
        assert repr(float(str(text))) == repr(value)


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "markdown", "arrow", "parquet"])
def test_batches_leave_no_trace(form: str) -> None:
    """How an answer was cut into batches cannot be seen in the text."""
    table = pa.table({"x": list(range(10)), "s": ["a"] * 10})
    if form not in {"arrow", "parquet"}:
        assert written(form, table, 3) == written(form, table)
    read = {"arrow": lambda b: pa.ipc.open_stream(b).read_all(), "parquet": _read_parquet}
    if form in read:
        assert read[form](written(form, table, 3)).equals(table)


def _read_parquet(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json", b"[]\n"),
        ("jsonl", b""),
        ("csv", b"x,s\n"),
        ("markdown", b"| x | s |\n| ---: | --- |\n"),
    ],
)
def test_no_rows_are_no_rows(form: str, text: bytes) -> None:
    """An empty answer is a valid document of its format, columns included where it has any."""
    empty = pa.table({"x": pa.array([], pa.int64()), "s": pa.array([], pa.string())})
    assert written(form, empty) == text
    assert _read_parquet(written("parquet", empty)).schema == empty.schema


def test_arrow_is_exact() -> None:
    """Arrow keeps every type; in a file, dictionaries become their values."""
    stream = pa.ipc.open_stream(written("arrow", MIXED)).read_all()
    assert stream.schema == MIXED.schema
    assert stream.drop(["deep"]).equals(MIXED.drop(["deep"]))  # a NaN differs from itself
    other = pa.table({"e": pa.array(["three"]).dictionary_encode()})
    both = [*MIXED.select(["e"]).to_batches(), *other.to_batches()]
    file = pa.ipc.open_file(b"".join(arrow_file_chunks(other.schema, both))).read_all()
    assert file.column("e").to_pylist() == ["one", "two", "three"]


def test_parquet_says_what_it_cannot_hold() -> None:
    """A type that Parquet lacks is named in a sentence."""
    with pytest.raises(UsageError, match="Parquet cannot hold this answer"):
        written("parquet", MIXED)
    kept = MIXED.drop(["age", "deep"])
    assert _read_parquet(written("parquet", kept)).num_rows == 2


def test_repeated_names_are_told_apart() -> None:
    """Columns of the same name lose no value where names must differ."""
    table = pa.table([[1], [2], [3]], names=["a", "a", "a_1"])
    assert len(set(unique_names(table.schema))) == 3
    assert list(json.loads(written("jsonl", table)).values()) == [1, 2, 3]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CELLS = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | TEXTS,
        "b": st.none() | st.booleans(),
    }
)
SCHEMA = pa.schema([("i", "int64"), ("f", "double"), ("s", "string"), ("b", "bool")])


@given(st.lists(CELLS, min_size=1, max_size=8))
def test_machine_formats_read_back(rows: list[dict[str, Any]]) -> None:
    """What JSON and CSV say is what the table held, NULL apart from every text."""
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    assert [json.loads(line) for line in written("jsonl", table).split(b"\n")[:-1]] == rows
    options = pa_csv.ConvertOptions(
        column_types=SCHEMA, strings_can_be_null=True, quoted_strings_can_be_null=False,
        null_values=[""],
    )  # fmt: skip
    parsing = pa_csv.ParseOptions(newlines_in_values=True)
    read = pa_csv.read_csv(
        io.BytesIO(written("csv", table)), convert_options=options, parse_options=parsing
    )
    assert read.to_pylist() == rows


def test_a_column_alone_keeps_its_rows_in_csv() -> None:
    """Readers pass over an empty line, which NULL would be."""
    text = written("csv", pa.table({"loss": [1.0, None, None, 2.0]}))
    assert text == b'loss\n1.0\n""\n""\n2.0\n'
    assert pa_csv.read_csv(io.BytesIO(text)).column("loss").to_pylist() == [1.0, None, None, 2.0]


@given(st.lists(CELLS, min_size=1, max_size=8))
def test_short_texts_are_one_line(rows: list[dict[str, Any]]) -> None:
    """A cell of a table holds no control character, and NULL is no text."""
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    for column in table.columns:
        for array in column.chunks:
            for text, value in zip(short_texts(array), array.to_pylist(), strict=True):
                assert (text is None) == (value is None)
                assert text is None or text.isprintable() or not any(ord(c) < 32 for c in text)


def test_numbers_are_short_for_the_eye_only() -> None:
    """A table rounds to six digits; CSV and JSON keep all of them."""
    column = pa.array([1 / 3])
    assert short_texts(column) == ["0.333333"]
    assert plain_texts(column) == json_texts(column) == ["0.3333333333333333"]


ODD = {
    "[NULL, INTERVAL 1 DAY]": '[null,"P1D"]',
    "[INTERVAL 3 MONTH]": '["P3M"]',
    "MAP {}": "{}",
    "[map([]::INT[], []::INT[]), MAP {1: 2}]": '[{},{"1":2}]',
    "union_value(a := MAP {'k': {'l': [1]}})": '{"k":{"l":[1]}}',
    "{'no': MAP {}, 'day': DATE '2020-01-31'}": '{"no":{},"day":"2020-01-31"}',
    "['290000-01-01'::DATE]::DATE[1]": '["<value out of range: 105200797>"]',
    "['2020-01-31'::DATE]::DATE[1]": '["2020-01-31"]',
    "'infinity'::TIMESTAMP": "infinity",
    "'-infinity'::TIMESTAMPTZ": "-infinity",
    "'infinity'::DATE": "infinity",
    "'290000-01-01'::TIMESTAMP": "<value out of range: 9089348860800000000>",
    "TIMESTAMP '2020-01-31 01:02:03'": "2020-01-31T01:02:03.000000",
    "[NULL, NULL]": "[null,null]",
}


def test_every_value_has_a_text_and_a_place_in_a_file() -> None:
    """What Arrow casts with an error, or by ending the process, is not cast."""
    duckdb = pytest.importorskip("duckdb")
    texts = ", ".join(f"{sql} AS c{number}" for number, sql in enumerate(ODD))
    table = duckdb.sql(f"SELECT {texts}, 'a'::ENUM('a') AS name").to_arrow_table()
    columns = [column.combine_chunks() for column in table.columns]
    assert [plain_texts(column)[0] for column in columns] == [*ODD.values(), "a"]
    assert all(json.loads(json_texts(column)[0]) is not None for column in columns)
    data = b"".join(arrow_file_chunks(table.schema, table.to_batches()))
    read = pa.ipc.open_file(data).read_all()
    assert read.column_names == table.column_names
    assert read.column("name").type == pa.string()


def _make_and_wait(thing: type) -> None:
    """Make one that goes at once, and wait for an alarm."""
    thing()
    time.sleep(60)
