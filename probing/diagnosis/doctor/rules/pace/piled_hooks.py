"""The rule about hooks that are registered again and again, and never removed.

Rules of this file: a pure function of `Facts`. Many hooks of one function on one module are rare
and may be meant; that they become more is told by a second look, some steps later, and only where
there are many already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...facts import Facts
from ...findings import Rule, Sign
from ..later import end_of_wait, last_step, wait_for_steps

Row = Mapping[str, Any]
Key = tuple[str, str | None, int | None]

_SAME, _MANY = 4, 16
"""So many of one object on one module, and so many closures, are worth a second look."""
_PILED, _SURE = 8, 64
"""So many of one object, and so many closures, are told without growth, too: one an epoch."""
_WANTED = 16
"""So many steps between the looks are waited for."""
_WAIT_S = 3.0


class _Growth(NamedTuple):
    """What has come between two looks.

    Attributes:
        before: The hooks of each function at the first look.
        after: The same at the second look.
        steps: So many steps ended between them.
        until: The step of the second look.
    """

    before: Mapping[Key, int]
    after: Mapping[Key, int]
    steps: int
    until: int


def _piled(facts: Facts) -> Iterator[Sign]:
    """A function hangs on a module many times."""
    rows = facts.live("hooks")
    many = [row for row in rows if _is_many(row, _SAME, _MANY)]
    if not many:
        return
    worst = max(many, key=lambda row: row["hooks"])
    growth = facts.ask("hooks later", lambda: _look_twice(facts))
    before, after = (look.get(_function(worst), 0) for look in (growth.before, growth.after))
    grown = after - before
    if after < before or (grown == 0 and not _is_many(worst, _PILED, _SURE)):
        return  # removed meanwhile, or registered a few times on purpose
    file = str(worst["file"] or "").rpartition("/")[2]
    place = f" ({file}:{worst['lineno']})" if file else ""
    others = len({row["module"] for row in many if _function(row) == _function(worst)}) - 1
    more = f", and likewise on {others} other module{'s' if others > 1 else ''}" if others else ""
    yield Sign(
        certainty="likely",
        summary=f"The hook {worst['function']}{place} hangs {worst['hooks']} times on module"
        f" {worst['module']} of {worst['model']}{more}: it is registered again and again and never"
        " removed",
        since_step=_since(growth, before, grown),
        evidence=(
            f"`hooks` of python.hooks: {before} in all, and {after} {growth.steps} steps later"
            if grown
            else f"`hooks` of python.hooks: {before} in all, as many {growth.steps} steps later",
            f"all of them run at each call ({worst['place']})",
        ),
        weight=0.5 if grown else 0.2,
    )


def _is_many(row: Row, same: int, closures: int) -> bool:
    """Whether a function hangs on a module so many times as one object, or as several."""
    again = row["hooks"] - row["objects"] + 1
    return bool(again >= same or row["hooks"] >= closures)


def _function(row: Row) -> Key:
    return row["function"], row["file"], row["lineno"]


def _totals(rows: Sequence[Row]) -> dict[Key, int]:
    """The hooks of each function on all modules."""
    found: dict[Key, int] = {}
    for row in rows:
        found[_function(row)] = found.get(_function(row), 0) + row["hooks"]
    return found


def _look_twice(facts: Facts) -> _Growth:
    """Look now, and after some steps."""

    def look() -> dict[Key, int]:
        return _totals(facts.process.live("hooks", wait_s=None).dicts())

    end = end_of_wait(facts, _WAIT_S)
    begun, before = last_step(facts), look()
    now = wait_for_steps(facts, _WANTED, since=begun, end=end)
    return _Growth(before=before, after=look(), steps=now - begun, until=now)


def _since(growth: _Growth, before: int, grown: int) -> int | None:
    """The step of the first of them, if they have always come as now: so many in each step."""
    if not grown or not growth.steps:
        return None
    each = grown / growth.steps
    each = round(each) if each >= 1 else 1 / round(1 / each)  # a step more or less may be counted
    return max(0, round(growth.until - (before + grown) / each))


RULES: Sequence[Rule] = (
    Rule(
        name="piled-hooks",
        group="slow",
        subject="hooks",
        symptom="Forward passes take longer and longer, and memory may grow with them.",
        evidence="python.hooks: one object hangs"
        f" {_SAME} times on one module, or closures of one function {_MANY} times, and up to"
        f" {_WANTED} steps later there are more; without that {_PILED} times and {_SURE} times."
        " Hooks that are removed in each step are not there.",
        certainty="likely",
        gravity=58,
        fix="Register each hook once, before the loop; or keep the handle that"
        " register_forward_hook returns, and call handle.remove().",
        source="https://pytorch.org/docs/stable/generated/torch.nn.Module.html",
        next='probing ENDPOINT query "FROM python.hooks ORDER BY hooks DESC LIMIT 20"',
        look=_piled,
        cost_s=1.0,
    ),
)
