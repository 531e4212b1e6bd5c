"""Processes in every state, asked everything: each row of `tests.matrix` is a test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import cast

import pytest

from probing.linux.permission import Access, explain
from tests.matrix.__main__ import render
from tests.matrix.cells import Row
from tests.matrix.rows import ROWS
from tests.matrix.runs import Runs

ALWAYS = frozenset({"hung-gil", "killed", "other_user", "sub_interpreter"})
"""The rows that are asked for each change; the others are asked nightly."""


def why_not_root(row: Row) -> str:
    """Why this user, or this kernel, does not let the row be set up; nothing when it does.

    Tried, not guessed: a container may take from root what it takes to make another one.
    """
    if os.getuid() != 0:
        return "only root may be somebody else"
    if not row.prefix:
        return ""
    done = subprocess.run([*row.prefix, "true"], capture_output=True, text=True)
    return f"{row.prefix[0]} is refused here: {done.stderr}" if done.returncode else ""


def marked(row: Row) -> object:
    """The row as a parameter, with the marks of its test."""
    marks = [pytest.mark.torch if row.needs_torch else pytest.mark.anypython]
    if row.name not in ALWAYS:
        marks.append(pytest.mark.nightly)
    if row.is_slow:
        marks.append(pytest.mark.slow)
    if row.needs_root:
        refused = why_not_root(row)
        marks.append(pytest.mark.skipif(bool(refused), reason=refused))
    return pytest.param(row, id=row.name, marks=marks)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    """The rows of the tests that were chosen, a few at a time."""
    chosen: list[Row] = [
        cast("Row", item.callspec.params["row"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == "test_a_row"
        and not any(mark.args[0] for mark in item.iter_markers("skipif"))
    ]
    running = Runs(chosen, tmp_path_factory.mktemp("matrix"))
    yield running
    running.close()


@pytest.mark.parametrize("row", [marked(row) for row in ROWS])
def test_a_row(row: Row, runs: Runs) -> None:
    """Each question to this process is answered or refused as promised, and does no harm."""
    outcomes = runs.outcomes(row)
    assert len(outcomes) == len(row.cells)
    assert not any(outcome.fault for outcome in outcomes), render([row], outcomes)


OTHERS = {"uid": 1000, "owner": 1000, "may_trace": False, "yama_scope": None}
PERMISSIONS = {
    "yama 1": ({"yama_scope": 1}, "only be looked into by its parent, or root", "ptrace_scope=0"),
    "yama 2": ({"yama_scope": 2}, "only be looked into by root", "sudo probing"),
    "yama 3": ({"yama_scope": 3}, "nobody may look", "reboot"),
    "yama 3, root": ({"yama_scope": 3, "uid": 0, "may_trace": True}, "nobody may", "PROBING=1"),
    "another user's": ({"owner": 7}, "belongs to user 7", "sudo -u '#7' probing"),
    "another user's, yama 1": ({"owner": 7, "yama_scope": 1}, "user 7", "or as root"),
    "root without the capability": ({"uid": 0, "owner": 0}, "SYS_PTRACE", "--cap-add SYS_PTRACE"),
    "undumpable": ({}, "PR_SET_DUMPABLE", "sudo probing"),
    "undumpable, yama 0": ({"yama_scope": 0}, "PR_SET_DUMPABLE", "sudo probing"),
}
"""What the kernel decides by, other than usual; what is missing; what grants it."""


@pytest.mark.anypython
@pytest.mark.parametrize(("access", "missing", "grant"), PERMISSIONS.values(), ids=PERMISSIONS)
def test_the_missing_permission_and_the_command_that_grants_it(
    access: dict[str, int], missing: str, grant: str
) -> None:
    """For every setting of the kernel, also those that this one does not have."""
    error = explain(4242, Access(**{**OTHERS, **access}))  # type: ignore[arg-type]
    assert missing in error.message
    assert "4242" in error.message
    assert grant in error.help
    assert error.exit_code == 4


def test_the_matrix_has_every_row_once() -> None:
    """Rows are told apart by their names, as tests are, and by their titles, as lines are."""
    assert {row.name for row in ROWS} > ALWAYS
    assert len({row.name for row in ROWS}) == len({row.title for row in ROWS}) == len(ROWS)
