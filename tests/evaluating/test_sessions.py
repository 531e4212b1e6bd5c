"""What the agent keeps of a prompt: as long as somebody may type its next line."""

from __future__ import annotations

import asyncio
import weakref
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from probing.agent import handlers
from probing.agent.eval.code import Pieces
from probing.agent.eval.evaluation import GRACE_S
from probing.agent.eval.evaluator import Evaluator
from probing.agent.eval.frame_names import Place
from probing.agent.eval.namespace import Names
from probing.agent.eval.run import IDLE_S, LAST_S, Shared
from probing.messages.common import EvalRequest
from probing.settings import Settings
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython


class OverdueError(Exception):
    """A line's time is up."""


class Large:
    """What a process would rather not hold for ever."""


def typed(shared: Shared, text: str, session: str | None = "one") -> Any:
    """What a line of a prompt comes to, and how the next ones find it."""
    own = shared.session(session)
    kept = shared.names if session is None else own.names
    names = Names(Place(0), {}, last=own.last, kept=kept, behind=shared.names, covers=own.covers)
    names.main = {"Large": Large}
    names.open()
    value = Pieces.of(text).run(names)
    names.close()
    return value


def test_what_a_prompt_has_assigned_goes_with_it() -> None:
    """No other prompt sees it; what other code has assigned is seen by all, and stays."""
    shared = Shared(Settings())
    gone = weakref.ref(typed(shared, "big = Large()\nbig"))
    typed(shared, "common = 7", None)
    assert typed(shared, "'big' in globals(), common", "two") == (False, 7)
    assert typed(shared, "big is not None, common") == (True, 7)
    assert gone() is not None
    evaluator: Any = SimpleNamespace(_shared=shared)
    Evaluator.end_session(evaluator, "one")
    assert gone() is None
    assert shared.names == {"common": 7}


def test_a_hook_that_a_prompt_has_left_still_has_its_names() -> None:
    """The training calls it on, and would fail where a name had gone."""
    shared = Shared(Settings())
    code = "import math\nseen = []\ndef count(x): seen.append(math.floor(x)); return seen\ncount"
    hook = typed(shared, code)
    shared.sessions.clear()
    assert hook(2.5) == [2]


def test_a_prompt_that_nobody_comes_back_to_is_forgotten() -> None:
    """Its last value goes first; a line that is typed in time has both."""
    shared = Shared(Settings())
    session = shared.session("one")
    session.names["rate"], session.last = 1, {"_": 42}
    shared.forget_unused(session.used_s + LAST_S - 1)
    assert typed(shared, "_, rate") == (42, 1)
    shared.forget_unused(session.used_s + LAST_S)
    assert (session.last, session.names) == ({}, {"rate": 1})
    shared.forget_unused(session.used_s + IDLE_S)
    assert not shared.sessions


@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_prompt_is_forgotten_also_behind_a_line_that_nobody_awaits(
    monkeypatch: pytest.MonkeyPatch, *, is_given_up: bool
) -> None:
    """Its client has gone away, or its time was up: what it keeps goes once it has ended."""

    async def body(*_: object) -> EvalRequest:
        return EvalRequest(code="big", session="one")

    async def type_line() -> None:
        forgotten = asyncio.Event()
        line: Any = SimpleNamespace(
            future=Future(), limit_s=60.0, cancel=str, overdue=lambda: OverdueError,
            leave_behind=lambda: None,
        )  # fmt: skip
        route: Any = handlers.Handlers.__new__(handlers.Handlers)
        route._evaluator = SimpleNamespace(submit=lambda *_: line, forget_unused=forgotten.set)
        if not is_given_up:
            line.limit_s = -GRACE_S
        asked = asyncio.ensure_future(route.eval(None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if is_given_up:
            asked.cancel()
        with pytest.raises(asyncio.CancelledError if is_given_up else OverdueError):
            await asked
        assert not forgotten.is_set()
        line.future.set_result(None)
        await asyncio.wait_for(forgotten.wait(), DEADLINE_S)

    for name, value in {"read_body": body, "sender_of": str, "LAST_S": 0.0, "IDLE_S": 0.0}.items():
        monkeypatch.setattr(handlers, name, value)
    asyncio.run(type_line())
