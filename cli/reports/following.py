"""One process, looked at again and again.

Rules of this file: what moves is read at every look, from its ring and the kernel; what takes an
SQL engine (modules, findings, ranks) only by `look_whole`, which may be afforded seldom.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from ...arguments import shown_command
from ...client.recent_steps import STILL, Row, pace_of, recent_steps, state_with
from ...errors import NotProbed
from ...postmortem.not_finite import peek_since
from .overview import CURVE, MOST_MODULES, Overview, overview_of, word_of
from .overview_memory import memory_now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...client.base import Process
    from ...messages.card import Card


class Following:
    """A process that is being followed.

    Attributes:
        process: Which.
        whole_at_s: When it was last looked at whole, in seconds since the epoch; None before that.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.whole_at_s: float | None = None
        self._rows: Sequence[Row] = ()
        self._whole: Overview | None = None

    def look(self) -> Overview:
        """How it is now; what only a whole look tells is that of the last one.

        Raises:
            ProbingError: It is not there, or nothing can be learnt of it.
        """
        known = self._whole
        try:
            card = self.process.status()
        except NotProbed:
            return self.look_whole()
        if known is None:
            known = Overview(
                endpoint=self.process.label,
                pid=card.pid,
                host=card.host,
                command=shown_command(card.command),
                rank=card.rank,
                world_size=card.world_size,
                state="",
                problems=card.problems,
            )
        return self._renewed(known, card)

    def look_whole(self) -> Overview:
        """All of it.

        Raises:
            ProbingError: It is not there, or nothing can be learnt of it.
        """
        self._whole = overview_of(self.process, most_modules=MOST_MODULES)
        self.whole_at_s = time.time()
        return self._whole

    def _renewed(self, known: Overview, card: Card) -> Overview:
        """The same with what moves."""
        from ...client.listing import summarize

        folder = self.process.folder
        self._rows = recent_steps(self.process, CURVE, self._rows)
        pace = pace_of(self._rows)
        if folder is None:
            state = _at_prompt(known, state_with(word_of(card), pace))
            return dataclasses.replace(known, pace=pace, state=state)
        state = _at_prompt(known, state_with(summarize(folder).state, pace))
        is_alive = state != "dead"
        return dataclasses.replace(
            known,
            pace=pace,
            state=state,
            not_finite=peek_since(folder),
            memory=memory_now(folder.pid, known.memory) if is_alive else known.memory,
        )


def _at_prompt(known: Overview, state: str) -> str:
    """A state; of one that was seen to wait for code, and makes no step since, that it is idle."""
    is_at_prompt = known.state == "idle" and known.doing is not None
    return "idle" if is_at_prompt and state == STILL else state
