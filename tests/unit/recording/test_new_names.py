"""New names that are written down while a signal's handler runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from probing.ring.names import decode_names
from probing.ring.writer import Names

pytestmark = pytest.mark.anypython


class Interrupted(Exception):
    """What a signal's handler raises."""


def intern_interrupted(names: Names, name: str, event: str, handler: Callable[[], object]) -> int:
    """Write a name down and have a handler called once as the write begins, or has just ended."""

    def profile(_frame: object, happened: str, function: object) -> None:
        if happened == event and function is os.write:
            sys.setprofile(None)
            handler()

    sys.setprofile(profile)
    try:
        return names.intern(name)
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("event", ["c_call", "c_return"])
def test_a_handler_amid_a_new_name_may_need_one_itself(event: str, tmp_path: Path) -> None:
    """It waits for nobody, and both names have the numbers of their places."""
    names, given = Names(tmp_path / "names"), {}
    given["first"] = names.intern("first")

    def handler() -> None:
        given["the handler's"] = names.intern("the handler's")

    given["second"] = intern_interrupted(names, "second", event, handler)
    given["third"] = names.intern("third")
    listed = decode_names((tmp_path / "names").read_bytes())
    assert {name: listed[number] for name, number in given.items()} == {n: n for n in given}
    assert (len(listed), names.problem) == (5, None)


@pytest.mark.parametrize("event", ["c_call", "c_return"])
def test_a_handlers_exception_amid_a_new_name_shifts_no_other(event: str, tmp_path: Path) -> None:
    """A name that is in the file without a number is taken out before the next one comes."""
    names = Names(tmp_path / "names")

    def handler() -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        intern_interrupted(names, "broken off", event, handler)
    number = names.intern("next")
    assert decode_names((tmp_path / "names").read_bytes())[number:] == ["next"]
