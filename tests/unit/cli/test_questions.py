"""Saved questions and parameters: what is put in where, and what is refused."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from probing.cli.ask.statement import statement_of
from probing.cli.completion import complete_questions
from probing.cli.main import run
from probing.cli.questions.library import QUESTIONS, find_question
from probing.cli.questions.records import put_in, read_parameters
from probing.errors import UsageError

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
    assert "LIMIT (7)" in statement_of("@last-steps", None, ["count=7"])
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
