"""Saved questions and parameters: what is put in where, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from probing.cli.ask.statement import statement_of
from probing.cli.completion import complete_questions
from probing.cli.main import run
from probing.cli.questions.library import OWN_TIMES, QUESTIONS, find_question
from probing.cli.questions.records import put_in, read_parameters
from probing.cli.render.text import module_name
from probing.errors import UsageError
from tests.harness.rows_of_ranks import Rows, asked

pytestmark = pytest.mark.anypython


@pytest.mark.parametrize(
    ("sql", "given", "text"),
    [
        ("SELECT $n", {"n": "3"}, "SELECT (3)"),
        ("SELECT $n", {"n": "-1.5e3"}, "SELECT (-1.5e3)"),
        ("SELECT $n", {"n": "it's"}, "SELECT 'it''s'"),
        ("SELECT $n", {"n": "1; DROP TABLE x"}, "SELECT '1; DROP TABLE x'"),
        ("SELECT $n", {"n": ""}, "SELECT ''"),
        ("SELECT '$a', \"$b\", $n -- $c", {"n": "1"}, "SELECT '$a', \"$b\", (1) -- $c"),
        ("SELECT 'it''s $a' || $n /* $c */", {"n": "x"}, "SELECT 'it''s $a' || 'x' /* $c */"),
        ("SELECT E'it\\'s $a', $$ $a $$, $n", {"n": "1"}, "SELECT E'it\\'s $a', $$ $a $$, (1)"),
        ("SELECT $n /* $a /* $b */ $c */", {"n": "1"}, "SELECT (1) /* $a /* $b */ $c */"),
        ("SELECT $a + $a", {"a": "2"}, "SELECT (2) + (2)"),
    ],
)
def test_a_parameter_is_one_literal(sql: str, given: dict[str, str], text: str) -> None:
    """Where a statement has its name, outside of texts, names and comments."""
    assert put_in(sql, given) == text


def test_a_missing_parameter_is_named() -> None:
    """The sentence says which, and how it is given."""
    with pytest.raises(UsageError, match=r"the statement has \$step\.") as caught:
        put_in("SELECT $step", {"stp": "1"})
    assert "-p step=VALUE" in str(caught.value.help)


def test_a_parameter_that_is_not_there_is_named() -> None:
    """The sentence says which there are."""
    with pytest.raises(UsageError, match=r"no \$stp\. Did you mean step\?"):
        put_in("SELECT $step", {"stp": "1"}, {"step": "2"})


@pytest.mark.parametrize("word", ["step", "=1", "a b=1", "1a=1"])
def test_what_is_no_parameter_is_refused(word: str) -> None:
    """It has a name and a value."""
    with pytest.raises(UsageError, match="is no parameter"):
        read_parameters([word])


def test_a_value_may_hold_anything() -> None:
    """Only the first equals sign divides."""
    assert read_parameters(["a=b=c", "d="]) == {"a": "b=c", "d": ""}


def test_a_statement_comes_from_where_it_is(tmp_path: Path) -> None:
    """The argument, a file by its suffix or by -f, and the library."""
    path = tmp_path / "my.sql"
    path.write_text("SELECT $n AS n\n")
    assert statement_of("SELECT 1", None) == "SELECT 1"
    assert statement_of(str(path), None, ["n=4"]) == "SELECT (4) AS n\n"
    assert statement_of(None, str(path), ["n=4"]) == "SELECT (4) AS n\n"
    assert "<= (7)" in statement_of("@last-steps", None, ["count=7"])
    assert statement_of("SELECT '$5'", None) == "SELECT '$5'"
    with pytest.raises(UsageError, match="cannot read"):
        statement_of(str(tmp_path / "none.sql"), None)
    with pytest.raises(UsageError, match="not both"):
        statement_of("@phases", str(path))


def test_a_misspelt_question_is_put_right() -> None:
    """The nearest one is named, and where all are listed."""
    with pytest.raises(UsageError, match="Did you mean @slowest-modules"):
        find_question("slow-modules")


def test_questions_are_listed_without_an_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with what it answers."""
    assert run(["query", "@"]) == 0
    shown = capsys.readouterr().out
    assert all(f"@{question.name} " in shown and question.doc in shown for question in QUESTIONS)


def test_questions_are_completed() -> None:
    """Once an @ is typed, and only then."""
    context, argument = click.Context(click.Command("query")), click.Argument(["sql"])
    assert len(complete_questions(context, argument, "@")) == len(QUESTIONS)
    assert [item.value for item in complete_questions(context, argument, "@slow-")] == [
        "@slow-steps"
    ]
    assert complete_questions(context, argument, "") == []


def test_there_are_enough_and_each_says_what_it_answers() -> None:
    """Names are unique words with dashes, docs questions."""
    names = [question.name for question in QUESTIONS]
    assert len(set(names)) == len(names) >= 15
    assert all(question.doc.endswith("?") for question in QUESTIONS)


MS = 1_000_000


def calls(
    step: int,
    root: str,
    *inner: tuple[str, int],
    at: int = 0,
    own: int = 15,
    model: str | None = None,
) -> Rows:
    """A forward call of a model whose own code takes so many ms, and of the modules in it."""
    whole = own + sum(ms for _, ms in inner)
    start_ns = (step * 1000 + at) * MS
    same = {"step": step, "stage": "forward", "thread_id": 1, "root": root, "model": model or root}
    return [
        {**same, "module": name, "class": "Linear", "depth": depth, "duration_ns": ms * MS,
         "start_ns": start_ns + depth}
        for depth, (name, ms) in enumerate([(root, whole), *inner])
    ]  # fmt: skip


def ended(steps: range, duration: float = 0.1) -> Rows:
    """Steps that have ended."""
    return [{"step": step, "duration": duration} for step in steps]


def test_ranks_are_not_taken_for_one_another() -> None:
    """Each rank's last steps count, and of its calls only those that it made itself are inner."""
    ahead = [row for step in range(100, 105) for row in calls(step, "Net", ("a", 5))]
    behind = [row for step in range(5) for row in calls(step, "Net", ("a", 5))]
    ranks = {
        0: {"steps": ended(range(100, 105)), "torch_trace": ahead},
        1: {"steps": ended(range(5)), "torch_trace": behind},
    }
    found = asked(find_question("slowest-modules").sql, ranks, steps="2")
    assert [(row["module"], row["calls"], row["own_ms"]) for row in found] == [
        ("Net", 4, 15), ("a", 4, 5)
    ]  # fmt: skip
    assert [row["percent_of_step"] for row in found] == [15, 5]


def test_memory_grows_within_a_rank() -> None:
    """The call before is one of the same rank; each has what it has."""
    tables = {
        rank: {
            "torch_trace": [
                {**row, "allocated_bytes": (rank + 1) << 30}
                for step in range(5)
                for row in calls(step, "Net", ("a", 5))
            ]
        }
        for rank in range(2)
    }
    assert asked(find_question("growing-calls").sql, tables, count="20") == []


def test_the_losses_before_are_of_the_same_rank() -> None:
    """No rank's usual loss is another's jump."""
    steps = {
        rank: {
            "steps": [
                {**row, "loss": 1.0 + 9 * rank, "loss_finite": True} for row in ended(range(60))
            ]
        }
        for rank in range(2)
    }
    assert asked(find_question("loss-spikes").sql, steps, factor="1.5") == []


def test_modules_of_two_models_are_two() -> None:
    """The model stands behind a name that several have; one made anew in each step is one."""
    trace = [
        row
        for step in range(3)
        for row in (
            *calls(step, "Gen", ("net.0", 10), model="g"),
            *calls(step, "Disc", ("net.0", 50), at=100, model="d"),
            *calls(step, "Loss", at=200, own=1, model=f"Loss {step + 1}" if step else "Loss"),
        )
    ]
    tables = {0: {"steps": ended(range(3)), "torch_trace": trace}}
    found = asked(OWN_TIMES, tables, steps="20")
    assert {module_name(row): (row["calls"], round(row["own_s"], 4)) for row in found} == {
        "net.0 of d": (3, 0.05), "Gen": (3, 0.015), "Disc": (3, 0.015), "net.0 of g": (3, 0.01),
        "Loss": (3, 0.001),
    }  # fmt: skip


def test_a_step_is_one_of_one_rank() -> None:
    """The last steps are each rank's own, and what is told of a step is divided by all of them."""
    sent = {"op": "all_reduce", "process_group": "g", "group_size": 2, "bytes": 1 << 20}
    made = {"module": "fc", "class": "Linear", "root": "Net", "stage": "forward"}
    ranks = {
        rank: {
            "steps": ended(range(steps)),
            "torch_trace": [row for step in range(steps) for row in calls(step, "Net", ("a", 5))],
            "collectives": [{**sent, "step": step} for step in range(steps) for _ in range(3)],
            "device_times": [
                {**made, "step": step, "device_s": 0.001} for step in range(steps) for _ in range(3)
            ],
        }
        for rank, steps in enumerate((9, 6))
    }

    def answers(name: str, **given: str) -> list[dict[str, Any]]:
        return asked(find_question(name).sql, ranks, **given)

    steps = [(row["step"], row["rank"]) for row in answers("last-steps", count="2")]
    assert steps == [(8, 0), (7, 0), (5, 1), (4, 1)]
    (kind,) = answers("collective-kinds")
    assert (kind["times"], kind["times_a_step"], kind["mib_a_step"]) == (45, 3.0, 3.0)
    (module,) = answers("device-modules", count="20")
    assert (module["calls"], module["ms"], module["ms_a_step"]) == (45, 1.0, 3.0)
    one = asked(find_question("classes").sql, {0: ranks[0]}, steps="2")
    assert answers("classes", steps="2") == one
