"""Learns which optimizers' steps make one step of the training.

Rules of this file: arithmetic only, no torch; used by the training thread, once per step of an
optimizer. Optimizers are numbers here; those that step in one backward pass are one number.
docs/explanation/training-step.md says what is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_MOST_REPEATS = 8
"""How often an optimizer may step while another one is waited for that has not stepped."""
_LONGEST = 512
"""How many steps of optimizers are looked at for a pattern."""


class Place(NamedTuple):
    """What is seen of where in the script an optimizer steps.

    Attributes:
        line: The calls that lead to it, the outermost first: the code and the place in it of each.
        is_fresh: Whether a model was called, or a backward pass made, since the one before.
    """

    line: tuple[tuple[int, int], ...] = ()
    is_fresh: bool = True


NO_PLACE = Place()


class StepPattern:
    """Says at each step of an optimizer whether it is the last of the training's step.

    Attributes:
        period: How many steps of optimizers make one of the training; 0 while that is not known.
        missed: How many more steps have ended than were told, by what is known now.
        is_late: Whether it began in the middle of the training, perhaps of a step; or may have,
            because an earlier pattern has failed.
    """

    def __init__(self) -> None:
        self.period = 0
        self.missed = 0
        self.is_late = False
        self._cycle: list[int] = []
        self._at = 0  # in the cycle
        self._rounds = self._ended = 0  # rounds and ends of steps since what is collected began
        self._ended_at = (0, 0)  # how many were seen at the last two ends
        self._seen: list[int] = []
        self._places: list[Place] = []
        self._borders: list[int] = []
        self._since: list[int] = []
        self._last: list[int] = []  # those of the step that has ended last
        self._absent: set[int] = set()
        self._longest_run = 0
        self._restarts = False
        self._left: list[int] = []  # that a scaler has left out, since the last step ended

    @property
    def cycle(self) -> tuple[int, ...]:
        """The steps of optimizers that make one of the training, in order, once that is known."""
        return tuple(self._cycle)

    def since(self) -> tuple[int, ...]:
        """Those that have stepped since the last step ended, in order."""
        return tuple(self._since)

    def since_last(self) -> tuple[int, ...]:
        """Those of the step that has ended last."""
        return tuple(self._last)

    @property
    def is_settled(self) -> bool:
        """Whether what follows is not the first that is seen of the training."""
        return bool(self.period) or self.is_late

    def stepped(self, who: int, expected: Callable[[], set[int]], place: Place = NO_PLACE) -> bool:
        """An optimizer has stepped; returns whether the training's step has ended by that.

        Args:
            expected: The optimizers that should step before it ends, as far as that can be seen;
                asked only while no pattern is known.
        """
        if self._left:
            self._count_left(who, expected)
        self.missed = 0
        self._absent.discard(who)
        self._since.append(who)
        if self.period and self._cycle[self._at] == who:
            self._at = (self._at + 1) % self.period
        else:
            self._give_up()
            self._add(who, place)
            self._leave_rest()
        ends = self._is_round() if self.period else self._is_complete(expected)
        if ends:
            self._end()
        return ends

    def left_out(self, who: int, expected: Callable[[], set[int]]) -> bool:
        """A gradient scaler has left out the step of an optimizer; else as `stepped`.

        It counts as one if another optimizer steps in the same step of the training. If none does,
        that goes on.
        """
        if self._since:
            return self.stepped(who, expected)
        if self.period:
            if self._cycle[(self._at + len(self._left)) % self.period] != who:
                self._left.clear()
        elif who in self._left:
            self._left.clear()
        self._left.append(who)
        if self.period and self._at + len(self._left) >= self.period:
            self._left.clear()
        return False

    def _count_left(self, who: int, expected: Callable[[], set[int]]) -> None:
        """One has stepped: those that were left out belong to its step, or to none."""
        left, self._left = self._left, []
        if self.period:
            at = self._at + len(left)
            is_one = at < self.period and [*self._cycle[self._at : at + 1]] == [*left, who]
        else:
            is_one = who not in left and set(left) <= expected()
        for one in left if is_one else ():
            self._since.append(one)
            if self.period:
                self._at += 1
            else:
                self._add(one, NO_PLACE)

    def is_steady(self, who: int) -> bool:
        """Whether one makes each step alone, as one has ended: then its next tells nothing new."""
        is_alone = self.period == 1 and self._cycle[0] == who and not self._since
        return is_alone and self._rounds == self._ended and not self._restarts

    def resume(self) -> None:
        """The step that has ended last, while no pattern is known, is not over after all."""
        self._since = [*self._last, *self._since]
        self._ended -= 1 + self.missed
        self._ended_at = (0, self._ended_at[0])

    def _is_round(self) -> bool:
        """Whether a round of the pattern is over, and is not counted yet."""
        if self._at:
            return False
        self._rounds += 1
        return self._rounds > self._ended

    def _give_up(self) -> None:
        """The pattern, if there is one, has foretold something else."""
        if self.period:
            self.period, self._cycle = 0, []
            self._forget(self._since[:-1])
            self._restarts = self.is_late = True

    def _forget(self, kept: list[int]) -> None:
        """Collect anew, from some that have been seen."""
        self._seen, self._places, self._borders = [], [], []
        self._rounds = self._ended = 0
        self._ended_at = (0, 0)
        for who in kept:
            self._note(who, NO_PLACE)

    def _add(self, who: int, place: Place) -> None:
        """Collect what has been seen while no pattern is known."""
        if len(self._seen) >= _LONGEST:
            self._forget([])
        self._note(who, place)

    def _note(self, who: int, place: Place) -> None:
        """Add one to what has been seen, with the length of the longest border up to it."""
        self._seen.append(who)
        self._places.append(place)
        border = self._borders[-1] if self._borders else 0
        here = len(self._seen) - 1
        while border and self._seen[border] != who:
            border = self._borders[border - 1]
        is_longer = here > 0 and self._seen[border] == who
        self._borders.append(border + 1 if is_longer else 0)

    def _leave_rest(self) -> None:
        """Count to the step in progress only what has stepped since the loop began anew.

        What stepped before is the rest of a step whose beginning was not seen.
        """
        if self.is_late and len(self._places) > 1:
            one, other = self._places[-2:]
            if _goes_back(one.line, other.line):
                del self._since[:-1]

    def _is_complete(self, expected: Callable[[], set[int]]) -> bool:
        """Whether nobody is waited for any more; learns the pattern where there is one."""
        missing = expected() - self._absent
        period = len(self._seen) - self._borders[-1]
        if len(self._seen) >= 2 * period and missing <= set(self._seen[-period:]):
            self._learn(period)
            return self._is_round()
        missing -= set(self._since)
        if not missing:
            return True
        repeats = max(self._since.count(who) for who in set(self._since))
        if repeats < max(_MOST_REPEATS, 2 * self._longest_run):
            return False
        self._absent |= missing
        self.missed = repeats - 1
        return True

    def _learn(self, period: int) -> None:
        """What has been seen is a repetition: from now on its end is known beforehand."""
        seen = len(self._seen)
        shift = self._begins(period) if self.is_late else 0
        self._cycle = self._seen[shift : shift + period]
        self._at = (seen - shift) % period
        self._rounds = (seen - shift) // period - (0 if self._at else 1)
        if self.is_late:
            # The end of the round in hand was told already, before the pattern was known.
            is_told = self._ended_at[1] > seen - (self._at or period)
            self._ended = self._rounds + is_told
        self.period = period
        runs = [1]
        for one, other in zip(self._cycle, self._cycle[1:], strict=False):
            runs.append(runs[-1] + 1 if one == other else 1)
        if len(set(self._cycle)) > 1:
            self._longest_run = max(self._longest_run, *runs)

    def _begins(self, period: int) -> int:
        """With which of a period's steps the training's begins, where it was not seen to begin.

        Where the place of the call goes back the loop has begun anew; else it begins with the only
        one before which a model was called.
        """
        places = self._places[-period - 1 :]
        first = len(self._seen) - period
        back = [n for n in range(period) if _goes_back(places[n].line, places[n + 1].line)]
        fresh = [n for n in range(period) if places[n + 1].is_fresh]
        (found,) = back if len(back) == 1 else fresh if len(fresh) == 1 else (-first,)
        return (first + found) % period

    def _end(self) -> None:
        """The training's step has ended."""
        self._last, self._since = self._since, []
        self._ended += 1 + self.missed
        self._ended_at = (self._ended_at[1], len(self._seen))
        if self._restarts:
            self._restarts = False
            self._forget([])


def _goes_back(one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...]) -> bool:
    """Whether the script has gone back to an earlier place of the same function."""
    for (code, at), (other_code, other_at) in zip(one, other, strict=False):
        if (code, at) != (other_code, other_at):
            return code == other_code and other_at < at
    return False
