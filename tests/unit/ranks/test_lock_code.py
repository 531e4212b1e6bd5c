"""Which locks a function has taken, as its instructions tell."""

from __future__ import annotations

import dis
import sys
from types import FrameType
from typing import Any

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


def _at_work(function: str) -> list[str]:
    """What a function has taken by the time it calls ``work()``."""
    scope: dict[str, Any] = {}
    exec(function, scope)
    code = scope["f"].__code__
    instructions = list(dis.get_instructions(code))
    named = next(n for n, one in enumerate(instructions) if one.argval == "work")
    call = next(one for one in instructions[named:] if one.opname.startswith("CALL"))
    return [str(taken.expression) for taken in CodeReader(code).taken(call.offset)]


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        ("with node.lock:\n  node = node.next\n  work()", []),
        ("with node.lock:\n  node.lock = node.next\n  work()", []),
        ("with node.lock as node:\n  work()", []),
        ("with lock:\n  lock.release()\n  work()\n  lock.acquire()", []),
        ("with lock:\n  try:\n   lock = node\n  finally:\n   work()", []),
        (
            "while node:\n  with node.lock:\n   node.value = a = work()\n  node = node.next",
            ["node.lock"],
        ),
        ("for lock in node:\n  with lock:\n   a = 1\n   work(lock)\n lock = node", ["lock"]),
        (
            "lock.acquire()\n try:\n  if node: return\n  work()\n finally:\n  lock.release()",
            ["lock"],
        ),
        ("with lock:\n  with node:\n   node = 3\n  work(node)", ["lock"]),
    ],
)
def test_what_a_name_leads_to_no_more_is_not_told(body: str, taken: list[str]) -> None:
    """A block that gives its lock back itself, or sets a name anew that led to it, tells nothing.

    What is set after the block, in the block around it, or of another name, changes nothing.
    """
    assert _at_work(f"def f(node, lock):\n {body}\n") == taken


def test_a_long_block() -> None:
    """What a block of hundreds of instructions has taken is found as that of a short one."""
    body = "  node.value = 1\n" * 200
    assert _at_work(f"def f(node, lock):\n with lock:\n{body}  work()\n") == ["lock"]


def _cost(tries: int) -> int:
    """How many instructions run until it is told what a function of many blocks has taken."""
    body = "".join(
        f"  try:\n   work({n})\n  except ValueError:\n   a = {n}\n" for n in range(tries)
    )
    scope: dict[str, Any] = {}
    exec(f"def f(lock):\n with lock:\n{body}", scope)
    reader, ran = CodeReader(scope["f"].__code__), 0
    calls = [o.offset for o in dis.get_instructions(scope["f"]) if o.opname.startswith("CALL")]

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal ran
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        ran += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        taken = list(reader.taken(calls[tries // 2]))
    finally:
        sys.settrace(before)
    assert [str(one.expression) for one in taken] == ["lock"]
    return ran


def test_many_blocks_cost_as_much_as_their_instructions() -> None:
    """Four times the blocks are read in about four times as much, not in its square."""
    assert _cost(48) < 6 * _cost(12)
