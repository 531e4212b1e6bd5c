"""What a rule waits for between two looks at a training that goes on."""

from __future__ import annotations

import time

from ..facts import Facts

_POLL_S = 0.2
_STEP = "SELECT coalesce(max(step), 0) AS step FROM python.steps WHERE duration IS NOT NULL"


def last_step(facts: Facts) -> int:
    """The last step that has ended; 0 before the first."""
    return int(facts.process.query(_STEP).to_pylist()[0]["step"])


def end_of_wait(facts: Facts, most_s: float) -> float:
    """Until when a rule may wait from now on, by `time.monotonic`: half of what is left at most."""
    return time.monotonic() + min(most_s, facts.seconds_left / 2)


def wait_for_steps(facts: Facts, wanted: int, *, since: int, end: float) -> int:
    """Wait until so many steps have ended since one, or the time is up; returns the last step."""
    while (now := last_step(facts)) - since < wanted and time.monotonic() < end:
        time.sleep(_POLL_S)
    return now
