"""The rule about state of parameters that are frozen.

Rules of this file: a pure function of `Facts`. Parts of a model that are trained in turn are frozen
for a while, too: that a parameter stays frozen is told by two looks with many steps between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...facts import Facts
from ...findings import Rule, Sign
from ..later import end_of_wait, last_step, wait_for_steps
from ..numbers.gradients import listed

Row = dict[str, Any]
Rows = Mapping[tuple[str | None, str], Row]

_LEAST_BYTES = 1 << 20
_WANTED, _ENOUGH = 40, 16
"""So many steps between the looks are waited for, and so many tell enough."""
_WAIT_S = 5.0
_IN_TURN = 0.8
"""Who was changed in fewer of all steps was frozen for a while, too."""


class _Looks(NamedTuple):
    """Two looks at all parameters.

    Attributes:
        least: So many steps ended between them,
        most: or so many, with those that ended while it was looked.
        until: How many steps there were by then.
    """

    before: Rows
    after: Rows
    least: int
    most: int
    until: int


def _frozen_state(facts: Facts) -> Iterator[Sign]:
    """An optimizer keeps state for parameters that are frozen."""
    if not any(map(_is_kept, facts.live("parameters"))):
        return
    looks = facts.ask("frozen parameters", lambda: _look_twice(facts))
    found = [row for key, row in looks.after.items() if _has_stayed(looks.before.get(key), row)]
    if not found:
        return
    total = sum(row["state_bytes"] for row in found)
    is_over = looks.least >= _ENOUGH
    turn = _why_in_turn(looks, {row["optimizer"] for row in found})
    yield Sign(
        certainty="likely" if is_over and not turn else "possible",
        summary=f"The optimizer keeps {total / 2**20:.1f} MiB for {len(found)} parameters that are"
        f" frozen: {listed([row['parameter'] for row in found])}",
        evidence=(
            "they require no gradient, and state is kept for them",
            f"nothing changed them in {looks.least} steps",
            *((f"{turn}: they may be trained in turn",) if turn else ()),
        ),
        weight=0.3,
    )


def _look_twice(facts: Facts) -> _Looks:
    """Look now, and after some steps."""

    def look() -> Rows:
        rows = facts.process.live("parameters", wait_s=None).dicts()
        return {(row["model"], row["parameter"]): row for row in rows}

    end = end_of_wait(facts, _WAIT_S)
    first, before, begun = last_step(facts), look(), last_step(facts)
    now = wait_for_steps(facts, _WANTED, since=begun, end=end)
    after, last = look(), last_step(facts)
    return _Looks(before=before, after=after, least=now - begun, most=last - first, until=last)


def _is_kept(row: Row) -> bool:
    is_large = (row["state_bytes"] or 0) >= _LEAST_BYTES
    return not row["trainable"] and row["has_state"] and is_large


def _has_stayed(before: Row | None, after: Row) -> bool:
    """Whether a parameter was frozen at both looks, and not changed between them."""
    if before is None or not _is_kept(before) or not _is_kept(after):
        return False
    return bool(before["version"] == after["version"])


def _why_in_turn(looks: _Looks, optimizers: set[str]) -> str:
    """Why their turn may come again; empty where nothing speaks for it."""
    others = [
        (row["version"] or 0, (row["version"] or 0) - (before["version"] or 0))
        for key, row in looks.after.items()
        if row["trainable"] and row["optimizer"] in optimizers
        if (before := looks.before.get(key)) is not None
    ]
    moved = [(version, change) for version, change in others if change > 0]
    if not moved:
        return "their optimizer has changed nothing in these steps"
    # In each step it is changed so many times at least, so that it was in so many at the most.
    steps = max(version * looks.most / change for version, change in moved)
    if steps < _IN_TURN * looks.until:
        return f"what is trained now was in {steps:.0f} of {looks.until} steps at the most"
    return ""


RULES: Sequence[Rule] = (
    Rule(
        name="frozen-state",
        group="memory",
        subject="memory",
        symptom="Freezing a part of the model has freed no memory.",
        evidence=(
            f"python.parameters, two looks with up to {_WANTED} steps between them: no gradient"
            " is required at both, no value was changed, and 1 MiB or more of state is kept."
            f" Likely after {_ENOUGH} steps in all of which others were trained: else parts may"
            " be trained in turn."
        ),
        certainty="likely",
        gravity=44,
        fix="Make the optimizer anew after freezing, or delete optimizer.state[parameter].",
        next="probing ENDPOINT memory",
        look=_frozen_state,
        cost_s=2.0,
    ),
)
