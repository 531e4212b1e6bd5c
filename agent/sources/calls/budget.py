"""Keeps what recording costs within its share of a step.

Rules of this file: runs in the training thread, between two steps, and only now and then: then the
rows of the last step are read back. What is left out of the record is always known by name. Where
the C part records, no call is left out; where the hooks of modules' backward passes cost more than
what is left of the budget, they rest in all but one in so many steps.

Caches decide what recording costs: between two module calls, the training's own work drives ours
out of them, and the same code takes several times what it takes in a loop. So all is timed where it
happens, but for what the C part does. What is done a few times per step is timed by `StepCosts`,
and hooks have a clock of their own. A recorded call can only afford to have its last part timed,
and that in some calls: `_CALL_PER_EXIT` makes a whole of it. Before the first is timed, a loop of
what a row consists of stands for it. Not counted is what recording collectives costs.
"""

from __future__ import annotations

import math
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ....ring.format import DONE, HEADER_SIZE
from ....ring.writer import RingWriter
from ..shared.recording import Recording
from ..shared.step_costs import Usual
from ..shared.thread_state import BACKWARD, FORWARD
from .backward.hooked import Hooked
from .backward.module_backward import ModuleBackward
from .names.module_names import ModuleNames

_ROW = struct.Struct("<QqI12sIBBBBqqQ")
_MOST_ROWS = 20_000
_ROW_PER_LOOP = 6.0
"""A recorded module call costs at least so many times what the timed loop does."""
_CALL_PER_ROW_IN_C = 20.0
"""What the C part adds to a call among a model's own work, as a multiple of writing its row in a
loop, where the caches know both."""
_CALL_PER_EXIT = 1.5
"""It costs so many times what the wrapper does from the module's return on, where the caches have
forgotten both: 1.2 to 1.9 were measured. Where they have not, it is the loop that counts."""
_AROUND_HOOKS, _AROUND_HOOKS_IN_C = 1.3, 3.5
"""Hooks cost a step so many times what their own clock says (`tests.benchmarks hooks`)."""
_SEEN = 0.7
"""The part of the budget that may be spent by the clocks: they do not see that the training has to
fetch again what recording has driven out of the caches."""
_FOR_CALLS = 0.3
"""Module calls get so much of the budget even where all of it goes for the step itself, and so much
of what that costs where it is more than the budget: leaving them out would help little then."""
_FOR_SAMPLES = 0.1
"""The part of it that recording and hooking every module, now and then, may take."""
_EVERY = 64
_SETTLED = 8
"""So many steps have their passes on record whole, whatever that costs: only then is it known."""
_READ, _READ_EVERY = 16, 8
"""So many steps are all read by the clocks of the C part; then, while hooks do not rest, one in so
many."""
_LOOPS = 256
_CLOSING = "cost_s share rows backward_modules thinned duration_ns"
"""The closing columns of probing.overhead, in the order in which they are written."""


class _Share(NamedTuple):
    """What the calls of one module came to in a step."""

    calls: int
    forward_ns: int


class Budget:
    """Chooses the modules whose backward pass is recorded, and those that are not recorded at all.

    Attributes:
        row_ns: What one recorded module call costs.
        hook_ns: What hooking the backward pass of one module call costs; 0.0 while it is unknown.
        hooked: Modules whose backward pass is recorded at each step that has any.
        hooked_every: One step in so many has any; a power of two, so ranks have some in common.
        thinned: Names of modules that are left out of most steps: too small, and too many.
        calls_ns: What recording the module calls of the last step has cost, by that estimate.
        hooks_ns: The same of their backward passes; where hooks rest, a step's part of it.
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
        self.row_ns = self.hook_ns = self._least_row_ns = 0.0
        self.hooked, self.hooked_every = 0, 1
        self.thinned: tuple[str, ...] = ()
        self.calls_ns = self.hooks_ns = self._step_hooks_ns = 0.0
        self._backward_calls = self._spent_ns = 0
        self._hook, self._exit = Usual(), Usual()
        self._hooks, self._took = Usual(), Usual()  # of steps in which C hooks graphs
        self._is_usual, self._has_rested = True, False  # the step in progress
        self._exits = self._exits_ns = 0
        self._lasted_ns: deque[int] = deque(maxlen=_EVERY)  # of the steps since the last plan
        self._chosen: dict[int, Hooked] = {}
        self._is_sample = False
        self._overhead = overhead
        overhead.require_closing(_CLOSING)
        self._recording = recording
        self._names = names
        self._backward = backward
        self._shares: dict[bytes, _Share] = {}
        self._made: dict[int, Hooked] = {}  # by the module's identity
        self._steps = 0
        self._next_plan = 1
        names.on_forget = self._forget

    @property
    def rest_ns(self) -> float:
        """What is done a few times in a step."""
        return self._recording.costs.total_ns

    @property
    def step_costs(self) -> Mapping[str, float]:
        """What `rest_ns` consists of, by source."""
        return self._recording.costs.step_ns

    def step_ended(self, first: int, last: int, took_ns: int) -> None:
        """A training step has ended, whose rows lie between two words."""
        self._recording.costs.step_ended()
        if self._backward.in_c is not None:
            self._learn_hooks_in_c(self._backward.in_c, took_ns)
            self._write(first, last, took_ns)
            self._rest()
            return
        self._learn_hooks()
        self._write(first, last, took_ns)
        self._steps += 1
        self._choose(first, last, took_ns)

    def _learn_hooks(self) -> None:
        """See what the clocks of calls and hooks have added up since the last step."""
        backward = self._backward
        spent, self._spent_ns = backward.spent_ns - self._spent_ns, backward.spent_ns
        self.hooks_ns = self._step_hooks_ns = _AROUND_HOOKS * spent
        if self._backward_calls:
            self._hook.add(self.hooks_ns / self._backward_calls)
            self.hook_ns = self._hook.value
        if backward.exits > self._exits:
            exit_ns = (backward.exits_ns - self._exits_ns) / (backward.exits - self._exits)
            self._exit.add(max(self._least_row_ns, _CALL_PER_EXIT * exit_ns))
            self.row_ns = self._exit.value
            self._exits, self._exits_ns = backward.exits, backward.exits_ns
        if not self.row_ns:
            self.row_ns = self._least_row_ns = _ROW_PER_LOOP * _time_of_a_loop()

    def _learn_hooks_in_c(self, in_c: Any, took_ns: int) -> None:
        """See what the C part has done since the last step; nothing where hooks have rested."""
        if self._has_rested:
            self._step_hooks_ns, self._backward_calls = 0.0, 0
            return
        self._backward_calls, hooks, timed, ns = in_c.new_backward_costs()
        self._steps += 1
        is_read = self._steps % _READ_EVERY == 1 or self._steps <= _READ or self.hooked_every > 1
        if is_read and self._is_usual:
            self.row_ns = self.row_ns or _CALL_PER_ROW_IN_C * in_c.row_cost()
            if timed:
                self._hook.add(_AROUND_HOOKS_IN_C * ns / timed)
                self.hook_ns = self._hook.value
            self._plan_hooks(hooks * self.hook_ns, took_ns)
        self._step_hooks_ns = hooks * self.hook_ns

    def _plan_hooks(self, hooks_ns: float, took_ns: int) -> None:
        """Say in how many steps C hooks graphs, now that it is known what that costs."""
        self._hooks.add(hooks_ns)
        self._took.add(took_ns)
        self.hooked = len(self._backward.hooked)
        self.hooked_every = self._steps_per_pass() if self._steps >= _SETTLED else 1
        self.hooks_ns = self._hooks.value / self.hooked_every

    def _steps_per_pass(self) -> int:
        """In how many steps one has the passes of modules on record, where C records."""
        whole = self.share * self._took.value * _SEEN
        free = whole - self.rest_ns - self.calls_ns
        allowed = max(free, max(whole, self.rest_ns) * _FOR_SAMPLES)
        if self._hooks.value <= allowed:
            return 1
        if allowed <= 0:
            return _EVERY
        return min(_EVERY, 1 << math.ceil(math.log2(self._hooks.value / allowed)))

    def _rest(self) -> None:
        """Have hooks rest in the step that begins, unless it is one of those that have them."""
        backward, every = self._backward, self.hooked_every
        # The device is timed in steps that a power of two divides, never in those before them.
        is_resting = every > 1 and (self._recording.now.step + 1) % every != 0
        if is_resting != backward.is_resting:
            backward.rest(is_resting=is_resting)
        # One that is timed on the device costs more, and few are.
        is_timed = backward.is_timed
        self._is_usual = not (is_resting or is_timed)
        self._has_rested = is_resting and not is_timed

    def _write(self, first: int, last: int, took_ns: int) -> None:
        """Write down what the step has cost."""
        rows, overhead = max(0, ((last - first) >> 2) - 1), self._overhead
        self.calls_ns = max(0, rows - self._backward_calls) * self.row_ns
        rest_ns = self._recording.costs.total_ns
        cost_s = (self.calls_ns + self._step_hooks_ns + rest_ns) * 1e-9
        thinned = len(self.thinned) if self.thinned and not self._is_sample else 0
        start_ns = time.perf_counter_ns() - took_ns
        word = overhead.open_row(start_ns, self._recording.now.step - 1)
        overhead.close_row(
            word, DONE, cost_s, cost_s / (took_ns * 1e-9), rows,
            0 if self._has_rested else self.hooked, thinned, took_ns,
        )  # fmt: skip

    def _choose(self, first: int, last: int, took_ns: int) -> None:
        """Choose anew, now and then; before that, look at all modules for a step each."""
        self._lasted_ns.append(took_ns)
        if self._steps >= self._next_plan:
            # One step that was held up says nothing of those to come.
            usual_ns = sorted(self._lasted_ns)[len(self._lasted_ns) // 2]
            self._next_plan = min(2 * self._steps, self._steps + self._until_sample(usual_ns))
            self._learn(first, last)
            self._plan(usual_ns)
            self._lasted_ns.clear()
        elif self._steps < self._next_plan - 2:
            return
        is_last = self._steps == self._next_plan - 1
        # Soon after the start, once only.
        self._is_sample = is_last and (self._steps == 1 or self._steps > _EVERY)
        if self._is_sample:
            self._names.leave_out([])
            hooked = {key: self._make(key) for key in self._hookable()}
        elif self._steps == self._next_plan - 2:
            hooked = dict.fromkeys(self._hookable(), self._backward.timed) | self._chosen
        else:
            hooked = self._chosen
        self._backward_calls = self._calls_of(hooked if self._is_sample else self._chosen)
        self._backward.hooked.clear()
        self._backward.hooked.update(hooked)

    def _until_sample(self, took_ns: int) -> int:
        """In how many steps every module is recorded again, with its backward pass."""
        allowed = self.share * took_ns * _FOR_SAMPLES
        if not self._is_sample or allowed <= 0:
            return _EVERY
        return max(_EVERY, math.ceil((self.calls_ns + self.hooks_ns) / allowed))

    def forget(self) -> None:
        """Recording has stopped; what it starts with next time is nothing."""
        self._steps, self._next_plan = 0, 1
        self._backward_calls = 0
        self._is_sample = False
        self._chosen = {}
        self._lasted_ns.clear()
        self._made.clear()
        self.hooked_every, self._is_usual, self._has_rested = 1, True, False
        self._backward.rest(is_resting=False)

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
        whole = self.share * took_ns * _SEEN
        rest = self.rest_ns
        free = whole * (1 - _FOR_SAMPLES) - rest
        allowed = max(free, max(whole, rest) * _FOR_CALLS)
        known = dict(self._names.known)
        shares = {key: self._shares.get(self._names.ids_of(key), _Share(0, 0)) for key in known}
        calls = sum(share.calls for share in shares.values())
        thin: dict[int, None] = {}
        smallest_first = sorted(shares, key=lambda key: shares[key].forward_ns)
        for key in smallest_first:
            if calls * self.row_ns <= allowed:
                break
            found = shares[key]
            # What costs no more than its share of the module's own time is worth it.
            is_dear = found.calls * self.row_ns > self.share * found.forward_ns
            if found.calls and is_dear and self._names.is_leaf(key):
                thin[key] = None
                calls -= found.calls
        self._names.leave_out(list(thin))
        self.thinned = tuple(sorted(self._names.paths[key] for key in thin))
        chosen: dict[int, Hooked] = {}
        left = free - calls * self.row_ns
        for key in reversed(smallest_first):
            cost = shares[key].calls * self.hook_ns
            is_root = known[key] in self._names.with_parameters
            if cost and cost <= left and not (is_root or key in thin):
                left -= cost
                chosen[key] = self._make(key)
        self._chosen, self.hooked = chosen, len(chosen)

    def _hookable(self) -> list[int]:
        """Every module that is recorded, but for roots: their backward is the whole pass."""
        roots = self._names.with_parameters
        return [key for key, ids in self._names.known.copy().items() if ids and ids not in roots]

    def _calls_of(self, modules: Iterable[int]) -> int:
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
        for modules in (self._backward.hooked, self._chosen, self._made):
            modules.pop(key, None)


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
