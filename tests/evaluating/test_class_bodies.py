"""Which names the body of a class sees in code that was sent, in every version of Python."""

from __future__ import annotations

from typing import Any

import pytest

from probing.agent.eval.code import Pieces
from probing.agent.eval.frame_names import Place
from probing.agent.eval.namespace import Names

pytestmark = pytest.mark.anypython

SCRIPTS = {"__name__": "__main__", "rate": 0.5, "max": "the script's", "twice": lambda f: (f, f)}
KNOWN = {"model": "what recorded calls have shown"}
BODY = """
import math
own = 3
class Outer:
    of_script, shadowed, of_frame, of_calls, of_code = rate, max, in_frame, model, own
    known: rate = len("ab")
    @twice
    def both(self): return rate, max, in_frame, model, own, len("ab"), math.e > 2
    class Inner:
        of_script = rate
    try:
        unknown_name
    except NameError as error:
        unknown = error.name
(Outer.of_script, Outer.shadowed, Outer.of_frame, Outer.of_calls, Outer.of_code, Outer.known,
 Outer.Inner.of_script, Outer.unknown, Outer.__module__, Outer.both[1](None) == (
 0.5, "the script's", 7, model, 3, 2, True))
"""


def run(code: str, *, assigns: bool = False) -> Any:
    """The value of the last expression, as a script with few names sees it."""
    in_frame = 7  # noqa: F841 - what the code finds
    names = Names(Place(0), KNOWN, assigns=assigns)
    names.main = dict(SCRIPTS)
    names.open()
    try:
        return Pieces.of(code).run(names)
    finally:
        names.close()


@pytest.mark.parametrize("assigns", [False, True])
def test_the_body_of_a_class_sees_what_the_code_around_it_sees(assigns: bool) -> None:
    """The names of the script, of frames, of recorded calls and of the code, then the builtins."""
    assert run(BODY, assigns=assigns) == (
        *(0.5, "the script's", 7, KNOWN["model"], 3, 2, 0.5, "unknown_name", "__main__", True),
    )


def test_globals_are_asked_for_as_of_a_dict() -> None:
    """By `get`, too; a builtin is none of them, and is found at its place."""
    code = "g = globals(); g.get('rate'), g.get('len'), g.get('no', 5), 'len' in g, len"
    assert run(code) == (0.5, None, 5, False, len)
    assert run("__builtins__.len, __builtins__['len']") == (len, len)
