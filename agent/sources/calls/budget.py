"""Keeps what recording costs within its share of a step.

Rules of this file: runs in the training thread, between two steps, and only now and then: then the
rows of the last step are read back. What is left out of the record is always known by name.

What a recorded call costs is estimated: a loop of what a row consists of is timed once in this very
process. What hooks cost is measured by their own clock at every step. Neither sees everything: that
Python is entered from autograd, and that caches have forgotten it meanwhile. The ratios below make
up for that; `python -m tests.benchmarks hooks hot_path` measures them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from typing import NamedTuple

from ....ring import DONE, HEADER_SIZE
from ...recorder import RingWriter
from ..steps.recording import BACKWARD, FORWARD, Recording
from .module_backward import Hooked, ModuleBackward
from .module_names import ModuleNames

_ROW = struct.Struct("<QqI12sIBBBBqqQ")
_MOST_ROWS = 20_000
_ROW_PER_LOOP = 2.0
"""A recorded module call costs so many times what the timed loop does."""
_AROUND_HOOKS = 2.0
"""Hooks cost a step so many times what their own clock says: measured 1.3, and 2.0 at most."""
_NEW = 0.5
"""What the last step counts for in the mean cost of hooks."""
_FOR_THE_STEP = 0.3
"""The part of the budget that is set aside for what is done once per step."""
_EVERY = 64
_LOOPS = 256


class _Share(NamedTuple):
    """What the calls of one module came to in a step."""

    calls: int
    forward_ns: int


class Budget:
    """Chooses the modules whose backward pass is recorded, and those that are not recorded at all.

    Attributes:
        row_ns: What one recorded module call costs.
        hook_ns: What hooking the backward pass of one module call costs; 0.0 while it is unknown.
        hooked: Modules whose backward pass is recorded at each step.
        thinned: Names of modules that are not recorded, because they are too small and too many.
        calls_ns: What recording the module calls of the last step has cost, by that estimate.
        hooks_ns: The same of their backward passes.
        rest_ns: What was done once in the last step, which is measured.
    """

    def __init__(
        self,
        recording: Recording,
        names: ModuleNames,
        backward: ModuleBackward,
        overhead: RingWriter,
        share: float,
    ) -> None:
        """Begin without any module's backward pass.

        Args:
            overhead: The ring of probing.overhead.
            share: The part of a step that recording may cost, 0.01 being one percent.
        """
        self.share = share
        self.row_ns = self.hook_ns = 0.0
        self.hooked = 0
        self.thinned: tuple[str, ...] = ()
        self.calls_ns = self.hooks_ns = self.rest_ns = 0.0
        self._backward_calls = self._spent_ns = 0
        self._overhead = overhead
        self._recording = recording
        self._names = names
        self._backward = backward
        self._shares: dict[bytes, _Share] = {}
        self._made: dict[int, Hooked] = {}  # by the module's identity
        self._steps = 0
        self._next_plan = 1
        names.on_forget = self._forget

    def step_ended(self, first: int, last: int, took_ns: int) -> None:
        """A training step has ended, whose rows lie between two words."""
        start = time.perf_counter_ns()
        self._write(first, last, took_ns, start)
        self._steps += 1
        self._choose(first, last, took_ns)
        self.rest_ns = time.perf_counter_ns() - start + self._recording.rows.cost_ns

    def _write(self, first: int, last: int, took_ns: int, now_ns: int) -> None:
        """Write down what the step has cost."""
        if not self.row_ns:
            self.row_ns = _ROW_PER_LOOP * _time_of_a_loop()
        rows = max(0, ((last - first) >> 2) - 1)
        spent, self._spent_ns = self._backward.spent_ns - self._spent_ns, self._backward.spent_ns
        self.hooks_ns = _AROUND_HOOKS * spent
        if self._backward_calls:
            each = self.hooks_ns / self._backward_calls
            self.hook_ns += (each - self.hook_ns) * (_NEW if self.hook_ns else 1.0)
        self.calls_ns = max(0, rows - self._backward_calls) * self.row_ns
        cost_s = (self.calls_ns + self.hooks_ns + self.rest_ns) * 1e-9
        word = self._overhead.open_row(now_ns - took_ns, self._recording.step - 1)
        values = {
            "duration_ns": took_ns,
            "cost_s": cost_s,
            "share": cost_s / (took_ns * 1e-9),
            "rows": rows,
            "backward_modules": len(self._backward.hooked),
            "thinned": len(self.thinned),
        }
        self._overhead.close_named(word, DONE, values)

    def _choose(self, first: int, last: int, took_ns: int) -> None:
        """Choose anew, now and then."""
        if self._steps >= self._next_plan:
            self._next_plan = min(2 * self._steps, self._steps + _EVERY)
            self._learn(first, last)
            self._plan(took_ns)
        # For the one step before a plan; soon after the start, once only.
        if self._steps == self._next_plan - 1 and (self._steps == 1 or self._steps > _EVERY):
            everything = self._everything()
            self._backward.hooked.update(everything)
            self._backward_calls = self._calls_of(everything)

    def forget(self) -> None:
        """Recording has stopped; what it starts with next time is nothing."""
        self._steps, self._next_plan = 0, 1
        self._backward_calls = 0
        self._made.clear()

    def _learn(self, first: int, last: int) -> None:
        """Read what each module took from the rows of a step."""
        trace = self._recording.trace
        found: dict[bytes, list[int]] = {}
        count = min((last - first) >> 2, _MOST_ROWS, (trace.slot_mask >> 2) - 1)
        for number in range(1, count):
            word = first + (number << 2)
            at = HEADER_SIZE + (word & trace.slot_mask) * trace.slot_scale
            row = _ROW.unpack_from(trace.buffer, at)
            begin, _, _, ids, _, stage, _, recomputed, _, duration, _, _ = row
            if begin == word and stage == FORWARD and not recomputed and duration > 0:
                share = found.setdefault(ids, [0, 0])
                share[0] += 1
                share[1] += duration
        self._shares.update({ids: _Share(*share) for ids, share in found.items()})

    def _plan(self, took_ns: int) -> None:
        """Choose, now that it is known what each module takes."""
        allowed = self.share * took_ns * (1 - _FOR_THE_STEP)
        known = dict(self._names.known)
        shares = {key: self._shares.get(self._names.ids_of(key), _Share(0, 0)) for key in known}
        calls = sum(share.calls for share in shares.values())
        thin: dict[int, None] = {}
        smallest_first = sorted(shares, key=lambda key: shares[key].forward_ns)
        for key in smallest_first:
            if calls * self.row_ns <= allowed:
                break
            if shares[key].calls and self._names.is_leaf(key):
                thin[key] = None
                calls -= shares[key].calls
        self._names.leave_out(list(thin))
        self.thinned = tuple(sorted(self._names.paths[key] for key in thin))
        chosen = {}
        left = allowed - calls * self.row_ns
        for key in reversed(smallest_first):
            cost = shares[key].calls * self.hook_ns
            is_root = known[key] in self._names.with_parameters  # whose backward is the whole pass
            if cost and cost <= left and not (is_root or key in thin):
                left -= cost
                chosen[key] = self._make(key)
        self.hooked = len(chosen)
        self._backward_calls = self._calls_of(chosen)
        self._backward.hooked.clear()
        self._backward.hooked.update(chosen)

    def _everything(self) -> dict[int, Hooked]:
        """Every module that is recorded, as one to be hooked."""
        names = self._names
        recorded = [key for key, ids in list(names.known.items()) if ids]
        return {k: self._make(k) for k in recorded if names.known[k] not in names.with_parameters}

    def _calls_of(self, modules: Iterable[int]) -> int:
        """How often modules are called in a step."""
        nothing = _Share(0, 0)
        return sum(self._shares.get(self._names.ids_of(key), nothing).calls for key in modules)

    def _make(self, key: int) -> Hooked:
        """What hooks a module: the same each time, for only the collector could free it.

        Its hooks refer to it and it to them, and the old ones among the thousands of objects that a
        training makes in a minute wait for the collector for hours.
        """
        ids, place = self._names.ids_of(key), self._names.place_of(key)
        made = self._made.get(key)
        if made is None or (made.ids, made.path) != (ids, place):
            made = self._made[key] = self._backward.make(ids, place)
        return made

    def _forget(self, key: int) -> None:
        """A module has died: another one may get its identity."""
        self._backward.hooked.pop(key, None)
        self._made.pop(key, None)


def _time_of_a_loop() -> float:
    """What it takes to write a row that leads nowhere, in nanoseconds."""
    place, clock = bytearray(_ROW.size), time.perf_counter_ns
    ids = bytes(12)
    best = float("inf")
    for _ in range(3):
        start = clock()
        for number in range(_LOOPS):
            _ROW.pack_into(place, 0, number, clock(), 0, ids, 0, BACKWARD, 0, 0, 0, 0, 0, number)
            _ROW.pack_into(place, 0, number, clock(), 0, ids, 0, BACKWARD, 0, 0, 0, 0, 0, number)
        best = min(best, (clock() - start) / _LOOPS)
    return best
