"""Which locks a function has taken, as its instructions tell."""

from __future__ import annotations

import dis

import pytest

from probing.agent.sources.stacks.bytecode import CodeReader

pytestmark = pytest.mark.anypython

# A script's own code declares annotations, which Python 3.10 sets up by an instruction.
SCRIPT = """
steps: int = 3
with lock:
    work()
"""


def test_a_script_with_annotations() -> None:
    """What it has taken is found as in a script without them."""
    code = compile(SCRIPT, "script.py", "exec")
    (at,) = (one.offset for one in dis.get_instructions(code) if one.argval == "work")
    (taken,) = CodeReader(code).taken(at)
    assert (str(taken.expression), taken.lineno) == ("lock", 3)
