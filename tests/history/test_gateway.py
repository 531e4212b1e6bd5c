"""The gateway, asked by the driver of ADBC: live and kept rows, tokens, and what goes wrong."""

from __future__ import annotations

import dataclasses
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import flight

from probing.cli.commands import gateway
from probing.cli.main import run
from probing.client.listing import summarize
from probing.errors import (
    DamagedHistory,
    NoHistory,
    ProbingError,
    QueryTimedOut,
    RemoteError,
    SqlError,
    SqlWorkerDied,
    Unreachable,
)
from probing.gateway import helper
from probing.gateway.__main__ import _parser, _place, _token_place
from probing.gateway.asked import HISTORY, LIVE, ROWS, TABLES, Asked, Place, meant
from probing.gateway.helper import _answer
from probing.gateway.helpers import Gone, Helpers
from probing.gateway.messages import packed, unpacked
from probing.history.export import export_process
from probing.history.query import History
from probing.messages.common import NOTES_KEY, encode_error
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.settings import Settings
from tests.harness.certificates import make_certificate
from tests.harness.late import late
from tests.harness.ring_writer import trace_writer
from tests.harness.targets import DEADLINE_S, ROOT, clean_env, wait_until

dbapi = late("adbc_driver_flightsql.dbapi", reason="of tests/history.txt")
pytestmark = pytest.mark.filterwarnings("ignore:Cannot disable autocommit")

_TOKEN, _READ_TOKEN = "t" * 32, "r" * 32
_HEADER = "adbc.flight.sql.authorization_header"
_ROOTS = "adbc.flight.sql.client_option.tls_root_certs"
_COUNT = "SELECT count(*) FROM torch_trace"


@pytest.fixture
def kept(ended: Callable[..., ProcessFolder], root: Path) -> Path:
    """A history of a run of 20 rows, with a column that only a newer version knows."""
    folder = ended(77, started_ns=1_700_000_000_000_000_077)
    trace_writer(capacity=64, rows=20).save(folder.ring("torch_trace"))
    export_process(folder, root)
    (path,) = root.glob("project=*/job=*/table=torch_trace/*/*.parquet")
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(rows.append_column("colour", pa.array(["red"] * len(rows))), path)
    return root


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a gateway; gives its address."""
    started = []
    limit = ("--timeout", str(DEADLINE_S))  # a helper may wait long for its turn to start

    def start(*words: str, home: Path = tmp_path / "home", **variables: str) -> str:
        tokens = {"PROBING_TOKEN": _TOKEN, "PROBING_READ_TOKEN": _READ_TOKEN}
        process = subprocess.Popen(
            [sys.executable, "-m", "probing", *words, *limit, "--listen", "127.0.0.1:0"],
            env={**clean_env(home), **tokens, **variables},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on grpc")
        return line.split()[2].rstrip(";")

    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
        if process.stdout is not None:
            process.stdout.close()


def connect(address: str, token: str = _READ_TOKEN, **options: str) -> Any:
    """A connection of the driver's."""
    return dbapi.connect(address, db_kwargs={_HEADER: f"Bearer {token}", **options})


def rows(connection: Any, sql: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    """What a statement gives."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


def test_which_rows_are_meant() -> None:
    """Those that live, where no history is named; texts, comments and columns are none."""
    both = Place(endpoints=("all",), history="runs")
    assert meant("FROM live.python.steps", both) == (LIVE, "FROM python.steps")
    assert meant('FROM "history" . "python".steps', both)[0] == HISTORY
    for sql in (
        "SELECT 'history.python.steps'",
        "SELECT 1 -- history.python.x",
        "FROM a.history.x",
        """SELECT E'\\'' AS "it's", step FROM python.steps WHERE host = 'history.python.x'""",
        "SELECT 1 /* /* a */ history.python.x */",
    ):
        assert meant(sql, both) == (LIVE, sql)
    for name in ("history.python.steps", '"HISTORY".python.steps'):
        sql = f"""SELECT step AS "step's" FROM {name} WHERE host = 'a'"""
        assert meant(sql, both) == (HISTORY, sql)
    assert meant("FROM steps", Place(history="runs"))[0] == HISTORY
    with pytest.raises(SqlError, match="one of the two, not both"):
        meant("FROM live.python.steps JOIN history.python.steps USING (step)", both)


def test_a_table_of_the_other_place_is_told_of(
    kept: Path, ended: Callable[..., ProcessFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement asks one of the two; what is suggested is there, and not what was typed."""
    monkeypatch.setenv("PROBING_HOME", str(ended(78).path.parent))
    both = Place(endpoints=("all",), history=str(kept))

    def told(sql: str) -> str:
        with pytest.raises(SqlError) as caught:
            next(_answer(Asked(kind=ROWS, place=both, sql=sql, timeout_s=60)))
        return caught.value.message

    for name in ("steps", "python.steps", '"python"."STEPS"'):
        sentence = told(f"FROM history.python.steps JOIN {name} USING (step)")
        plain = name.replace('"', "")
        assert sentence.startswith(f"{plain} is of live processes and the statement asks history")
    assert told("FROM history.python.stepss").endswith("Did you mean history.python.steps?")
    assert told("FROM history.steps").endswith("Did you mean history.python.steps?")
    assert told("FROM history.stepss") == (
        "there is no table history.stepss. Did you mean history.python.steps?"
    )
    assert told("FROM stepss").endswith("Did you mean python.steps?")
    assert told("SELECT losss FROM steps").endswith("Did you mean loss?")


def test_kept_runs_are_asked_and_a_wrong_token_is_refused(
    kept: Path, serve: Callable[..., str]
) -> None:
    """Tables, rows and values for marks; what writes and what is wrong is one sentence."""
    address = serve("gateway", str(kept))
    with connect(address) as connection:
        assert rows(connection, f"{_COUNT} WHERE seq > ?", [5]) == [(15,)]
        assert rows(connection, "SELECT count(*) FROM history.python.torch_trace") == [(20,)]
        (catalog,) = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        names = {
            table["table_name"]
            for schema in catalog["catalog_db_schemas"]
            for table in schema["db_schema_tables"]
        }
        assert {"torch_trace", "steps", "processes"} <= names
        columns = connection.adbc_get_table_schema("torch_trace", db_schema_filter="python").names
        assert (columns[:2], columns[-1]) == (["run", "project"], "colour")
        assert rows(connection, "SELECT DISTINCT colour FROM torch_trace") == [("red",)]
        with pytest.raises(dbapi.Error, match="INSERT statement, and only statements that read"):
            rows(connection, "INSERT INTO steps VALUES (1)")
        with pytest.raises(dbapi.Error, match="there is no column nope") as failed:
            rows(connection, "SELECT nope FROM steps")
        assert "Traceback" not in str(failed.value)
        with pytest.raises(dbapi.Error, match="has 1 question mark, and 0 values were given"):
            rows(connection, "SELECT ? + 1")
        many = pytest.raises(dbapi.Error, match="execute one that reads, and not executemany")
        with connection.cursor() as cursor, many:
            cursor.executemany("SELECT ? + 1", [[1], [2]])
    wrong = pytest.raises(dbapi.Error, match=r"UNAUTHENTICATED.*the token is wrong")
    with connect(address, "wrong") as stranger, wrong as refused:
        rows(stranger, "SELECT 1")
    assert ".." not in str(refused.value)
    with dbapi.connect(address, db_kwargs={"username": "me", "password": _TOKEN}) as named:
        assert rows(named, "SELECT 1") == [(1,)]


class _Jdbc:
    """Calls as Apache Arrow's driver of JDBC makes them by its source, which is not at hand."""

    def __init__(self, client: flight.FlightClient) -> None:
        """Begin with a password, for which there is a token."""
        self._client = client
        self._options = flight.FlightCallOptions(
            headers=[client.authenticate_basic_token("me", _TOKEN)]
        )

    def told(self, name: str, **fields: Any) -> pa.Table:
        """The rows of a command."""
        (endpoint,) = self._client.get_flight_info(_of(name, fields), self._options).endpoints
        assert endpoint.locations == []  # here, by the same connection
        return self._client.do_get(endpoint.ticket, self._options).read_all()

    def done(self, name: str, message: str, **fields: Any) -> list[Any]:
        """The results of an action."""
        action = flight.Action(name, packed(message, **fields))
        results = self._client.do_action(action, self._options)
        return [unpacked(one.body.to_pybytes()).body for one in results]

    def put(self, name: str, rows: pa.Table, **fields: Any) -> None:
        """Send rows."""
        writer, _ = self._client.do_put(_of(name, fields), rows.schema, self._options)
        with writer:
            writer.write_table(rows)


def _of(name: str, fields: dict[str, Any]) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(packed(name, **fields))


def test_a_driver_of_jdbc_is_told_of_the_server(kept: Path, serve: Callable[..., str]) -> None:
    """What it can do, its catalogs, and tables with their columns."""
    with flight.connect(serve("gateway", str(kept))) as client:
        jdbc = _Jdbc(client)
        told = jdbc.told("CommandGetSqlInfo").to_pydict().values()
        can = dict(zip(*told, strict=True))
        assert (can[0], can[3], can[504]) == ("probing", True, '"')
        assert jdbc.told("CommandGetCatalogs")["catalog_name"].to_pylist() == [HISTORY]
        names = {"table_name_filter_pattern": "torch_trace"}
        (table,) = jdbc.told("CommandGetTables", include_schema=True, **names).to_pylist()
        assert _schema(table["table_schema"]).names[:2] == ["run", "project"]


def test_statements_of_a_driver_of_jdbc_are_prepared(kept: Path, serve: Callable[..., str]) -> None:
    """Each, with or without values; its columns are told before its rows."""
    prepared, making = "CommandPreparedStatementQuery", "ActionCreatePreparedStatementRequest"
    with flight.connect(serve("gateway", str(kept))) as client:
        jdbc = _Jdbc(client)
        for sql, values, count in ((_COUNT, [], 20), (f"{_COUNT} WHERE seq > ?", ["5"], 15)):
            (made,) = jdbc.done("CreatePreparedStatement", making, query=sql)
            handle = {"prepared_statement_handle": made.prepared_statement_handle}
            assert bool(made.parameter_schema) == bool(values)
            if values:
                asked = pa.table([values], schema=_schema(made.parameter_schema))
                jdbc.put(prepared, asked, **handle)
            rows_ = jdbc.told(prepared, **handle)
            assert rows_.schema.names == _schema(made.dataset_schema).names
            assert rows_.columns[0].to_pylist() == [count]
            closing = "ActionClosePreparedStatementRequest"
            assert jdbc.done("ClosePreparedStatement", closing, **handle) == []


def _schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def test_an_encrypted_gateway_is_asked_by_who_knows_its_certificate(
    kept: Path, tmp_path: Path, serve: Callable[..., str]
) -> None:
    """Whoever does not, or speaks in the clear, gets no row and holds nobody up."""
    cert, key = make_certificate(tmp_path, "gateway")
    address = serve("gateway", str(kept), "--tls-cert", cert, "--tls-key", key)
    assert address.startswith("grpc+tls://127.0.0.1:")
    address = address.replace("127.0.0.1", "localhost")  # which the certificate is of
    with connect(address) as stranger, pytest.raises(dbapi.Error, match="certificate"):
        rows(stranger, _COUNT)
    with connect(address.replace("+tls", "")) as open_, pytest.raises(dbapi.Error):
        rows(open_, _COUNT)
    with connect(address, **{_ROOTS: Path(cert).read_text()}) as connection:
        assert rows(connection, _COUNT) == [(20,)]
    refused = pytest.raises(dbapi.Error, match="the token is wrong")
    with connect(address, "wrong", **{_ROOTS: Path(cert).read_text()}) as wrong, refused:
        rows(wrong, _COUNT)


def test_a_cursor_that_is_closed_halfway_ends_its_statement(
    kept: Path, tmp_path: Path, serve: Callable[..., str]
) -> None:
    """Its helper goes, and another client asks meanwhile."""
    address = serve("gateway", str(kept))
    with connect(address) as connection, connect(address) as other:
        cursor = connection.cursor()
        cursor.execute("SELECT * FROM range(100000000)")
        assert cursor.fetchmany(2) == [(0,), (1,)]
        assert rows(other, _COUNT) == [(20,)]
        busy = _helpers(tmp_path)
        cursor.close()
        wait_until(lambda: len(_helpers(tmp_path) & busy) < len(busy), "its helper has ended")


def test_who_gives_no_answer_in_time_is_ended(kept: Path) -> None:
    """Without a server around it: a statement without an end, and a client that has gone."""
    helpers = Helpers()
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    asked = Asked(kind=ROWS, place=Place(history=str(kept)), sql=endless, timeout_s=0.5)
    with pytest.raises(ProbingError, match="ended after its limit"):
        list(helpers.answer(asked, lambda: False))
    asked = dataclasses.replace(asked, timeout_s=DEADLINE_S)  # not over before anybody looks
    with pytest.raises(Gone):
        list(helpers.answer(asked, lambda: True))
    helpers.close()


def test_who_asks_a_gateway_that_is_stopped_is_told(kept: Path) -> None:
    """It is not the statement's fault, whether it has begun or not."""
    helpers = Helpers()
    sql = "FROM range(1000000000)"
    endless = Asked(kind=ROWS, place=Place(history=str(kept)), sql=sql, timeout_s=DEADLINE_S)
    answer = helpers.answer(endless, lambda: False)
    next(answer)
    helpers.close()
    for rest in (answer, helpers.answer(endless, lambda: False)):
        with pytest.raises(Unreachable, match="the gateway was stopped"):
            list(rest)


_CUT = """import os, sys
import pyarrow as pa
sys.stdin.buffer.readline()
rows = pa.table({{"n": [1, 2]}})
pa.ipc.new_stream(sys.stdout.buffer, rows.schema).write_table(rows)
sys.stdout.buffer.flush()
os.write(2, {told})
os.close(1)
sys.stdin.buffer.read()
"""
"""A helper that sends two rows without an end mark, and is still there until it is given up."""


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "untold"])
def test_rows_that_break_off_are_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    """However late their helper ends: its error is told, or that it gave none."""
    told = encode_error(SqlError("it broke")) if is_told else b""
    (tmp_path / "helper.py").write_text(_CUT.format(told=told))
    script = tmp_path / "helper"
    words = shlex.join([sys.executable, str(tmp_path / "helper.py")])
    script.write_text(f"#!/bin/sh\nexec {words}\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    helpers = Helpers()
    asked = Asked(kind=ROWS, place=Place(), sql="", timeout_s=DEADLINE_S)
    answer = helpers.answer(asked, lambda: False)
    assert next(answer).names == ["n"]
    assert next(answer).to_pylist() == [{"n": 1}, {"n": 2}]
    with pytest.raises(RemoteError if is_told else SqlWorkerDied) as broken:
        list(answer)
    assert ("it broke" in broken.value.message) is is_told
    helpers.close()


def test_a_statement_that_fails_amid_its_rows_sends_no_end_mark(kept: Path, tmp_path: Path) -> None:
    """By that mark a client tells rows that are whole from those that came before an error.

    The error is at a row far behind the first: the engine's other threads may compute two million
    rows ahead, and an error there ends the statement before these are sent.
    """
    late = "CAST(if(range < 9000000, '1', 'x') AS INTEGER)"
    mark = b"\xff\xff\xff\xff\0\0\0\0"
    for column, code, ends in ((late, 1, False), ("1", 0, True)):
        sql = f"SELECT {column} AS n FROM range(10000000)"
        asked = Asked(kind=ROWS, place=Place(history=str(kept)), sql=sql, timeout_s=DEADLINE_S)
        question = json.dumps(dataclasses.asdict(asked)).encode() + b"\n"
        helper = subprocess.Popen(
            [sys.executable, "-m", "probing.gateway.helper"],
            cwd=ROOT,
            env=clean_env(tmp_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            assert helper.stdin is not None
            helper.stdin.write(question)
            helper.stdin.flush()  # it is open until the end: a helper ends with whoever asks
            sent, told = _read_both(helper)
            assert (helper.wait(DEADLINE_S), sent.endswith(mark)) == (code, ends), told
        finally:
            helper.kill()
            helper.communicate()
        assert len(sent) > 500_000  # rows have come before its error
        assert (b"Could not convert string 'x'" in told) is (code == 1)


def _read_both(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """All that a process writes."""
    assert process.stdout is not None
    assert process.stderr is not None
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(process.stderr.read)
        return process.stdout.read(), told.result()


def test_the_token_is_where_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the file of an option, in a variable, or where node servers keep it."""
    file = tmp_path / "token"
    file.write_text(_TOKEN)
    became: list[tuple[str, ...]] = []
    monkeypatch.setattr(gateway, "become", lambda *words, **_: became.append(words))
    assert run(["--token-file", str(file), "-t", "all", "gateway"]) == 0
    options, directory = _parser().parse_args(became[0][1:]), RunDirectory(tmp_path)
    given = Settings.from_env({"PROBING_TOKEN": _TOKEN})
    assert _token_place(options, given, directory) == str(file)
    options.token_in = ""
    assert _token_place(options, given, directory) == "PROBING_TOKEN"
    assert _token_place(options, Settings(), directory) == str(tmp_path / "node.token")


def test_ranks_that_are_missing_are_named(
    ended: Callable[..., ProcessFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the metadata of the columns, with what was found out about the others."""
    folder = ended(job="llm", rank=0, world_size=2)
    trace_writer(capacity=64, rows=20).save(folder.ring("torch_trace"))
    monkeypatch.setenv("PROBING_HOME", str(folder.path.parent))
    place = Place(endpoints=("all",))
    answer = _answer(Asked(kind=ROWS, place=place, sql=_COUNT, timeout_s=60))
    notes = json.loads(next(answer).metadata[NOTES_KEY])
    assert [batch.to_pylist() for batch in answer] == [[{"count_star()": 20}]]
    assert notes == [
        "asked 1 of 2 ranks: 1 answered (rank 0 from its record), rank 1 not seen",
        "job llm has ended: what was recorded is what answers",
        "rank 1 not seen",
    ]


def test_a_history_that_is_not_there_yet_hides_no_live_table(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a setting names beside processes is made by the first export."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    later = str(tmp_path / "later")
    settings = Settings.from_env({"PROBING_HISTORY": later})
    place = _place(_parser().parse_args(["--history", later, "all"]), settings)
    answer = _answer(Asked(kind=TABLES, place=place))
    next(answer)
    assert {row["catalog_name"] for batch in answer for row in batch.to_pylist()} == {LIVE}
    for words, said in ((["all"], Settings.from_env({})), ([], settings)):
        with pytest.raises(NoHistory):
            _place(_parser().parse_args(["--history", later, *words]), said)
    with pytest.raises(NoHistory):
        list(_answer(Asked(kind=TABLES, place=Place(history=later))))

    def damaged(*_: object, **__: object) -> None:
        raise DamagedHistory("its file", "it is torn")

    monkeypatch.setattr(History, "schema", damaged)
    beside = Place(endpoints=("all",), history=str(kept))
    with pytest.raises(DamagedHistory):  # is told, and no list of a part
        list(_answer(Asked(kind=TABLES, place=beside, with_schemas=True)))


def test_files_are_looked_into_for_longer_on_a_busy_machine(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a list of columns would be without those that only its files have."""
    limits: list[float] = []

    def late(_: History, __: str, *, timeout_s: float) -> None:
        limits.append(timeout_s)
        raise QueryTimedOut(timeout_s)

    monkeypatch.setattr(helper, "grace_s", lambda: 25.0)
    monkeypatch.setattr(History, "query", late)
    place = Place(history=str(kept))
    for timeout_s in (60.0, 9.0):
        list(_answer(Asked(kind=TABLES, place=place, with_schemas=True, timeout_s=timeout_s)))
    assert limits == [25.0, 9.0]


@pytest.mark.slow
@pytest.mark.torch
def test_a_live_training_is_asked_beside_its_history(
    tmp_path: Path, serve: Callable[..., str]
) -> None:
    """Its steps go on between two statements; both catalogs are there, and are not mixed."""
    home = tmp_path / "home"
    small = ["--steps", "1000000", "--layers", "1", "--dim", "16", "--context", "8", "--batch", "2"]
    training = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "train_gpt.py"), *small],
        env={**clean_env(home), "PROBING": "1", "OMP_NUM_THREADS": "1"},
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        folder = wait_until(lambda: _recording(home), "it records", 2 * DEADLINE_S)
        export_process(folder, tmp_path / "runs")
        address = serve("-t", "all", "gateway", str(tmp_path / "runs"))
        newest = "SELECT pid, max(step) FROM live.python.steps GROUP BY pid"
        with connect(address) as connection:
            ((pid, first),) = rows(connection, newest)
            assert pid == training.pid
            wait_until(lambda: rows(connection, newest)[0][1] > first, "another step")
            assert rows(connection, "SELECT count(*) FROM history.probing.processes") == [(1,)]
            with pytest.raises(dbapi.Error, match="not both"):
                rows(connection, "FROM steps JOIN history.python.steps USING (step)")
    finally:
        training.kill()
        training.wait()


def _recording(home: Path) -> ProcessFolder | None:
    folders = RunDirectory(home).folders() if home.exists() else []
    return next((one for one in folders if (summarize(one).step or 0) > 3), None)


def _helpers(place: Path) -> set[str]:
    """Those that run of a gateway whose run directory is in a folder, asked or in waiting."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            is_helper = b"probing.gateway.helper" in path.read_bytes()
            if is_helper and str(place).encode() in (path.parent / "environ").read_bytes():
                found.add(path.parent.name)
        except OSError:
            continue
    return found
