"""The wire: objects to bytes and back, whatever the bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from probing.errors import BadRequest, ProbingError, QueryTimedOut, SqlError, error_classes
from probing.messages import common as wire
from probing.messages.routes import ROUTES

pytestmark = pytest.mark.anypython

FRAME = wire.Frame(
    func="f",
    file="x.py",
    lineno=3,
    line="f()",
    locals=(wire.Local(name="a", value="1"),),
    call="f()",
)
THREAD_BYTES = wire.ThreadBytes(thread_id=1, read_bytes=7, written_bytes=0)
AWAITED = wire.Awaited(kind="lock", what="the lock x", holder_id=7, since="x.py:3 in f")
CASES: list[tuple[Any, str]] = [
    (wire.Pong(pid=7), '{"pid":7}'),
    (
        wire.QueryRequest(sql="SELECT 1", timeout_s=2.5),
        '{"sql":"SELECT 1","timeout_s":2.5,"max_rows":null}',
    ),
    (
        wire.EvalRequest(code="1", now=True),
        '{"code":"1","timeout_s":null,"now":true,"thread":null,"frame":null,"session":null,"assign":false,"together":null}',
    ),
    (
        wire.Backtrace(
            pid=1,
            source="agent",
            threads=(
                wire.ThreadStack(
                    thread_id=1, name="t", is_main=True, frames=(FRAME,), awaits=AWAITED
                ),
            ),
            work=wire.WorkDone(time_s=2.5, threads=(THREAD_BYTES,)),
            tasks=(wire.TaskStack(kind="asyncio", name="Task-1", frames=(), thread_id=1),),
        ),
        '{"pid":1,"source":"agent","threads":[{"thread_id":1,"name":"t","is_main":true,"frames":'
        '[{"func":"f","file":"x.py","lineno":3,"line":"f()","kind":"python",'
        '"locals":[{"name":"a","value":"1"}],"call":"f()"}],"daemon":null,"alive":true,"state":null,'
        '"cpu_s":null,"holds_gil":null,"waiting":null,"wchan":null,"awaits":{"kind":"lock",'
        '"what":"the lock x","holder_id":7,"since":"x.py:3 in f","who":null,"is_certain":true,'
        '"is_settled":false,"has_limit":true},"ready_s":null,"sleeps":null}],"note":null,'
        '"work":{"time_s":2.5,"threads":[{"thread_id":1,"read_bytes":7,"written_bytes":0}],'
        '"children_cpu_s":null,"children_bytes":null},'
        '"tasks":[{"kind":"asyncio","name":"Task-1","frames":[],"thread_id":1,"waiting":null}]}',
    ),
    (
        wire.LiveRows(table="threads", columns=("a", "b"), rows=(("x", 1), (None, 2.5))),
        '{"table":"threads","columns":["a","b"],"rows":[["x",1],[null,2.5]],"note":null}',
    ),
    (
        wire.TablesAnswer(tables=(wire.TableStatus(name="t", kind="live"),)),
        '{"tables":[{"name":"t","kind":"live","rows":null,"written":null,"overwritten":null,'
        '"dropped":null,"oldest_ns":null,"problem":null,"own":null}]}',
    ),
]


@pytest.mark.parametrize(("value", "text"), CASES, ids=lambda x: type(x).__name__)
def test_both_ways(value: object, text: str) -> None:
    """Encoding gives exactly these bytes, and decoding them the same object."""
    assert wire.encode(value).decode() == text
    assert wire.decode(type(value), text) == value


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1" + 400 * "0"])
def test_no_request_has_a_number_that_is_none(number: str) -> None:
    """A time limit that is not a number would be none: nothing is later than it."""
    body = f'{{"sql":"SELECT 1","timeout_s":{number}}}'
    with pytest.raises(BadRequest):
        wire.decode_request(wire.QueryRequest, body)


def test_an_error_body_with_an_endless_number_is_none() -> None:
    """It says so, as any other body that describes no error."""
    body = {"code": "x", "status": float("inf"), "exit_code": 1, "message": "", "help": "",
            "detail": {}}  # fmt: skip
    with pytest.raises(BadRequest):
        wire.decode_error(json.dumps({"error": body}).encode())


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("", "the body is not JSON"),
        ("[1]", "QueryRequest must be an object"),
        ("{}", "QueryRequest lacks 'sql'"),
        ('{"sql": 1}', "QueryRequest.sql must be str"),
        ('{"sql": "x", "max_rows": 1.5}', "QueryRequest.max_rows must be int"),
        ('{"sql": "x", "max_rows": true}', "QueryRequest.max_rows must be int"),
        ('{"sql": "x", "nope": 1}', "QueryRequest has no member 'nope'"),
        ("[" * 100_000, "the body is not JSON"),
    ],
)
def test_a_wrong_body_is_told_what_is_wrong(body: str, sentence: str) -> None:
    """Every way to get a body wrong has a sentence that names the member."""
    with pytest.raises(BadRequest) as caught:
        wire.decode_request(wire.QueryRequest, body)
    assert sentence in caught.value.message


def test_versions_differ_in_what_they_know() -> None:
    """An answer may say more than is known; a question has only what it asks for."""
    told = '{"eval_id":null,"more":1,"tables":[{"name":"t","kind":"live","rows":1,"new":[]}]}'
    assert wire.decode(wire.TablesAnswer, told).tables[0].name == "t"
    asked = wire.QueryRequest(sql="SELECT 1", timeout_s=None, max_rows=0)
    assert wire.encode_request(asked) == b'{"sql":"SELECT 1","max_rows":0}'


BODIES = sorted(
    {c for r in ROUTES for c in (r.request, r.answer) if isinstance(c, type)},
    key=lambda c: c.__name__,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.slow
@given(cls=st.sampled_from(BODIES), data=st.binary() | JSON.map(lambda x: json.dumps(x).encode()))
def test_any_bytes_give_an_object_or_a_bad_request(cls: type[object], data: bytes) -> None:
    """No bytes at all lead to any other exception, for any body of any route."""
    try:
        value = wire.decode(cls, data)
    except BadRequest:
        return
    assert isinstance(value, cls)


@given(
    sql=st.text(),
    timeout=st.none() | st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    rows=st.none() | st.integers(),
)
def test_requests_survive_the_way(sql: str, timeout: float | None, rows: int | None) -> None:
    """Any statement with any limits arrives as it was sent."""
    request = wire.QueryRequest(sql=sql, timeout_s=timeout, max_rows=rows)
    assert wire.decode_request(wire.QueryRequest, wire.encode_request(request)) == request


@pytest.mark.parametrize(
    "error",
    [
        QueryTimedOut(3.0),
        SqlError("no table x", sql="SELECT\n x", position=8, suggestion="python.steps"),
        BadRequest("it is empty"),
    ],
)
def test_errors_travel_whole(error: ProbingError) -> None:
    """Code, status, exit code, sentence, help and facts are those of the sender."""
    there = wire.decode_error(wire.encode_error(error))
    for name in ("code", "status", "exit_code", "message", "help", "detail"):
        assert getattr(there, name) == getattr(error, name)


def test_the_caret_stands_under_the_place() -> None:
    """The excerpt of a faulty statement is its line with a caret under the character."""
    error = SqlError("wrong", sql="SELECT a,\n  b FROM t\nWHERE", position=14)
    assert error.detail == {
        "position": 14,
        "line": 2,
        "column": 5,
        "excerpt": "  b FROM t\n    ^",
    }


@given(data=st.binary())
def test_no_bytes_make_a_broken_error(data: bytes) -> None:
    """An error body that is none is a bad request, whatever it is."""
    with pytest.raises(BadRequest):
        wire.decode_error(data)


def test_every_error_says_what_to_do() -> None:
    """All but the roots of the tree and two that need no advice carry a way out."""
    silent = {cls.__name__ for cls in error_classes() if not cls.help}
    assert silent <= {
        "ProbingError",
        "UsageError",
        "Unreachable",
        "Refused",
        "NoPermission",
        "UnsafeRunDirectory",
    }
