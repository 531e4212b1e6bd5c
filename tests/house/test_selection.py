"""Which tests run at night and on other Pythons, and which are begun first."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import LONGEST, NIGHTLY, begin_with_the_longest


def test_the_list_of_the_night_names_files_that_there_are(request: pytest.FixtureRequest) -> None:
    """Each line of tests/nightly.txt begins the name of a test, and stands there once."""
    files = {prefix.partition("::")[0] for prefix in NIGHTLY}
    assert [file for file in files if not (request.config.rootpath / file).exists()] == []
    assert len(NIGHTLY) == len(set(NIGHTLY)) > 0


@pytest.mark.nightly
def test_each_line_of_the_list_has_a_test(request: pytest.FixtureRequest) -> None:
    """A test that was renamed is found missing here, where its file was collected."""
    names = [item.nodeid for item in request.session.items]
    files = {name.partition("::")[0] for name in names}
    asked = [prefix for prefix in NIGHTLY if prefix.partition("::")[0] in files]
    assert [prefix for prefix in asked if not any(n.startswith(prefix) for n in names)] == []


def test_the_longest_files_are_begun_first(request: pytest.FixtureRequest) -> None:
    """Each is there; the other files follow, and tests of a file stay in their order."""
    assert [file for file in LONGEST if not (request.config.rootpath / file).exists()] == []
    names = ["tests/a.py::z", f"{LONGEST[1]}::z", f"{LONGEST[1]}::a", "tests/a.py::a"]
    items: Any = [SimpleNamespace(nodeid=name) for name in [*names, f"{LONGEST[0]}::b"]]
    begin_with_the_longest(items)
    assert [item.nodeid for item in items] == [f"{LONGEST[0]}::b", *names[1:3], names[0], names[3]]


def test_a_file_that_other_pythons_run_says_so(request: pytest.FixtureRequest) -> None:
    """For them tests/run.sh collects only files that name the mark; of those collected here."""
    marked = {item.path for item in request.session.items if item.get_closest_marker("anypython")}
    unnamed = [path for path in marked if not re.search(r"\banypython\b", path.read_text("utf-8"))]
    assert unnamed == []
