"""Errors: what each says to do next is about itself."""

from __future__ import annotations

import shlex

import pytest

from probing import errors
from probing.errors import ProbingError, SqlError, root
from probing.errors.querying import told_of

pytestmark = pytest.mark.anypython

BRANCHES = {kind for kind in vars(root).values() if isinstance(kind, type)} | {
    errors.SqlError,
    errors.BadRequest,
}
"""What these say to do helps with whatever goes wrong in their way, too."""
CLASSES = errors.error_classes()


@pytest.mark.parametrize("kind", [c for c in CLASSES if c.help], ids=lambda kind: kind.__name__)
def test_the_way_out_is_the_errors_own(kind: type[ProbingError]) -> None:
    """An error that says nothing else does not send people where its parent's help leads."""
    owner = next(each for each in kind.__mro__ if "help" in vars(each))
    assert owner is kind or owner in BRANCHES


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_meaning_and_way_out_are_two_things(kind: type[ProbingError]) -> None:
    """The page of errors shows one behind the other, and says nothing twice."""
    meaning = " ".join((kind.__doc__ or "").split()).lower()
    for sentence in filter(None, kind.help.lower().rstrip(".").split(". ")):
        assert sentence not in meaning


def test_the_worker_is_no_matter_of_columns() -> None:
    """Who has ended the SQL worker is not helped by a list of tables."""
    for kind in (errors.SqlWorkerDied, errors.SqlWorkerRests):
        assert kind.help != SqlError.help


def test_an_exception_that_is_not_ours_is_a_missing_library_or_our_fault() -> None:
    """Where only the agent is installed, who asks is told so, whatever asked for the library."""
    ours = SqlError("no")
    assert told_of(ours) is ours
    missing = told_of(ModuleNotFoundError("No module named 'duckdb'", name="duckdb"))
    assert (missing.code, missing.message[:23]) == ("missing_library", "duckdb is not installed")
    assert told_of(ZeroDivisionError("x")).message == "internal error: ZeroDivisionError: x."


@pytest.mark.parametrize("library", ["pandas", "probing-agent[otel]", "numpy"])
def test_what_is_to_be_installed_can_be_typed(library: str) -> None:
    """As one word of a shell: zsh looks for files that fit a pattern in brackets."""
    command = errors.MissingLibrary(library).help.split("`")[1]
    (word,) = [word for word in command.split() if "probing" in word or word == library][-1:]
    (plain,) = shlex.split(word)
    assert word == shlex.quote(plain)
    assert plain == (library if library != "numpy" else "probing-agent[cli]")
