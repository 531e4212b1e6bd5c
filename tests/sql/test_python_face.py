"""What `probing.connect` gives a program: all questions, typed and awaited, and a DB-API module."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Iterator

import pytest

import probing
from probing import dbapi
from tests.harness.targets import Target

pytestmark = pytest.mark.torch


@pytest.fixture
def asked(training: Target, monkeypatch: pytest.MonkeyPatch) -> probing.Process:
    """The bundled training, as a program reaches it."""
    monkeypatch.setenv("PROBING_HOME", str(training.home))
    return probing.connect(training.pid)


def test_reports_are_those_of_the_command_line(asked: probing.Process, training: Target) -> None:
    """The same loaders, model and devices; the same verdict; no error of memory."""

    def told(*words: str) -> dict[str, object]:
        done = training.run(str(training.pid), *words, "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    loaders = asked.dataloaders()
    assert [one.dataset for one in loaders.loaders] == ["CharDataset"]
    assert loaders.wait_share is not None
    assert len(told("dataloaders")["loaders"]) == 1  # type: ignore[arg-type]
    (model,) = asked.summary(depth=1).models
    assert model.facts["class"] == told("summary")["models"][0]["class"]  # type: ignore[index]
    assert [device.name for device in asked.memory(top=2).devices] == ["cpu"]
    assert asked.oom().oom is None
    assert asked.hang().outcome == told("hang")["outcome"] == "fine"
    assert asked.stragglers(5).stragglers == ()


def test_what_waits_for_steps_does_so(asked: probing.Process) -> None:
    """Gradients and storages of the next steps; how far it is comes to who wants to know."""
    heard: list[object] = []
    watch = asked.gradients(1, tell=heard.append)
    assert watch.armed.state == "over"
    assert {row["parameter"] for row in watch.rows} >= {"tokens.weight"}
    assert heard
    assert asked.leak(2).steps == 2


def test_a_run_is_examined_and_compared(asked: probing.Process, training: Target) -> None:
    """`doctor` says what it looked at, and nothing differs from itself."""
    report = asked.doctor(within_s=10)
    assert report.healthy or report.findings
    assert asked.diff(training.pid).differences == ()


def test_questions_are_awaited_at_once(asked: probing.Process, training: Target) -> None:
    """Several at a time, in a loop that goes on meanwhile."""

    async def ask() -> tuple[object, ...]:
        process = await probing.connect_async(training.pid)
        job = await probing.connect_many_async([str(training.pid)])
        steps = [result.step async for result in process.eval_steps("6 * 7", times=2)]
        answers = await asyncio.gather(
            process.query("SELECT 1 AS one"), process.eval("6 * 7"), process.dataloaders(),
            job.query("SELECT count(*) AS n FROM steps"), job.hang(),
        )  # fmt: skip
        return (*answers, steps)

    rows, value, loaders, counted, verdicts, steps = asyncio.run(ask())
    assert [row["n"] > 0 for row in counted] == [True]  # type: ignore[attr-defined]
    assert len(verdicts) == 1  # type: ignore[arg-type]
    assert sorted(set(steps)) == steps  # type: ignore[call-overload]
    assert len(steps) == 2
    assert repr(asked) == f"<probing.Process {training.pid}>"
    assert list(rows) == [{"one": 1}]  # type: ignore[call-overload]
    assert value.value == "42"  # type: ignore[attr-defined]
    assert loaders.loaders  # type: ignore[attr-defined]
    assert asked.label == str(training.pid)


@pytest.fixture
def cursor(asked: probing.Process, training: Target) -> Iterator[dbapi.Cursor]:
    """A cursor of PEP 249 on the training."""
    with dbapi.connect(training.pid) as connection:
        yield connection.cursor()
    with pytest.raises(dbapi.InterfaceError):
        connection.cursor()


VALUES = [
    None,
    True,
    -3,
    1e300,
    float("inf"),
    "it's ? \\ and $x",
    b"\x00'\xff",
    dt.date(2026, 1, 2),
    dt.time(3, 4, 5),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - as SQL has it
]


def test_values_stand_for_question_marks(cursor: dbapi.Cursor) -> None:
    """Of each type, and none in texts, names and remarks."""
    marks = ", ".join("?" for _ in VALUES)
    cursor.execute(f"SELECT {marks}, '?', $$?$$ AS \"?\" -- ?\n /* ? */", VALUES)
    assert cursor.fetchone() == (*VALUES, "?", "?")
    assert cursor.fetchone() is None
    with pytest.raises(dbapi.ProgrammingError, match="has 1 question mark, and 2 values"):
        cursor.execute("SELECT ?", [1, 2])
    with pytest.raises(dbapi.ProgrammingError, match="a value of type object"):
        cursor.execute("SELECT ?", [object()])


def test_rows_come_as_pep_249_has_them(cursor: dbapi.Cursor) -> None:
    """Description, counts, and the ways to fetch."""
    cursor.execute("SELECT i, i::VARCHAR AS s FROM range(5) t(i)")
    assert cursor.description is not None
    assert [column[0] for column in cursor.description] == ["i", "s"]
    assert cursor.description[0][1] == dbapi.NUMBER != cursor.description[1][1] == dbapi.STRING
    assert cursor.rowcount == 5
    assert cursor.fetchone() == (0, "0")
    assert cursor.fetchmany(2) == [(1, "1"), (2, "2")]
    assert [row[0] for row in cursor] == [3, 4]
    assert cursor.fetchall() == []
    cursor.close()
    with pytest.raises(dbapi.InterfaceError):
        cursor.fetchall()


def test_errors_are_those_of_pep_249(cursor: dbapi.Cursor) -> None:
    """What is wrong, what would write, and what is not there."""
    with pytest.raises(dbapi.ProgrammingError, match="steeps") as caught:
        cursor.execute("FROM steeps")
    assert caught.value.help
    with pytest.raises(dbapi.NotSupportedError):
        cursor.execute("DROP TABLE python.steps")
    with pytest.raises(dbapi.NotSupportedError):
        cursor.executemany("SELECT ?", [[1]])
    with pytest.raises(dbapi.OperationalError):
        dbapi.connect(2**31 - 1)
