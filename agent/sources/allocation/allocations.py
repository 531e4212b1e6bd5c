"""Every allocation of some steps on the CPU, as torch.profiler sees it.

Rules of this file: as in `profiler`, all but `cancel`, `save` and the constructor runs in the
training thread, at the ends of steps. Two steps pass before the profiler is on: one is timed, for
the others to be compared with, in one the calls are counted. At each end the storages alive are
listed: what was there before the profiler has no stack, and what a block is for is known by
identity alone.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...agent_threads import start_thread
from ...on_demand.allocation_file import AllocationHead, write_allocations
from ..calls.names.module_names import walk
from ..calls.profiler import StepsProfile
from ..shared.recording import Recording
from ..storage.births import births_of
from ..storage.storages import storages_now
from .call_count import CallCount
from .creating_lines import frames_of
from .tree import AllocationTree, Census, Known

_MOST_CALLS = 100_000
"""How many calls in Python are recorded; torch.profiler takes about a second for so many."""
_STEPS_BEFORE = 2
"""One is timed, in one the calls are counted."""
_WARNINGS_OFF = 2
"""The level of torch's own log that lets errors pass, and no warnings."""


class AllocationSteps(StepsProfile):
    """The allocations of some steps, recorded by torch.profiler.

    Args:
        recording: Knows the modules.
        entries: How many events are kept, the newest.
        first_step: The first step to record; None for the next.

    Attributes:
        step_s: What a recorded step took on average, the start of the profiler and the lists of
            storages included; None before that is known.
        plain_step_s: What a step before took, without the profiler.
        note: What is not recorded, and why.
    """

    how = "profiler"

    def __init__(
        self,
        steps: int,
        step: Callable[[], int | None],
        *,
        recording: Recording,
        entries: int,
        first_step: int | None = None,
    ) -> None:
        super().__init__(steps, step, 0)
        self.step_s: float | None = None
        self.plain_step_s: float | None = None
        self.entries = entries
        self._timed_from = None if first_step is None else first_step - _STEPS_BEFORE
        self._recording = recording
        self._censuses: list[tuple[int, Census]] = []
        self._marks: list[tuple[int, int]] = []
        self._modules: dict[int, str] = {}
        self._identities: dict[int, int] = {}
        self._is_noting = False
        self._warnings = _TorchWarnings()
        self._count = CallCount(_MOST_CALLS)
        self._has_stacks = True
        self.note: str | None = None
        self._passed_ns = self._spent_ns = 0

    def finish(self) -> None:
        """Have the step in progress be the last; one that has not begun is cancelled."""
        with self._lock:
            if self.state == "waiting":
                self.cancel()
            elif self.state == "running":
                self.steps = min(self.steps, self.done + 1)

    def save(self, path: Path) -> None:
        """Write what was recorded; runs in the agent's thread, in small pieces."""
        profiler, self._profiler = self._profiler, None
        tree = AllocationTree(self._modules)
        tree.read(profiler.profiler.kineto_results.experimental_event_tree())
        events = tree.events_with(self._censuses)
        self._censuses = []
        head = AllocationHead(self.how, ("cpu",), tuple(self._marks), self.entries)
        head = head._replace(step_s=self.step_s, plain_step_s=self.plain_step_s, note=self.note)
        write_allocations(path, head, tree.stacks, events)
        frames = frames_of(tree.stacks, tree.open_stacks)
        births_of(self._recording).learn(frames, self._identities)

    def _make_profiler(self) -> Any:
        """See `StepsProfile`."""
        return self._torch.profiler._KinetoProfile(
            activities=[self._torch.profiler.ProfilerActivity.CPU],
            profile_memory=True,
            record_shapes=True,
            with_stack=self._has_stacks,
        )

    def _advance(self, step: int) -> None:
        """See `StepsProfile`; one step is timed before, and in a second one calls are counted."""
        if self.state == "waiting" and self._timed_from is not None and step < self._timed_from:
            self.moved_s = time.monotonic()
            return
        now = time.perf_counter_ns()
        before, self._passed_ns = self._passed_ns, now
        if self.state == "waiting" and (not before or self.plain_step_s is None):
            self.moved_s = time.monotonic()
            if before:
                self.plain_step_s = (now - before) * 1e-9
                self._has_stacks = self._count.is_possible()
                if self._has_stacks:
                    self._count.start()
            return
        if self.state == "waiting":
            self._count.stop()
            self._keep_within()
        elif self.state == "running":
            self._spent_ns += now - before
        super()._advance(step)
        if self.done:
            self.step_s = self._spent_ns / self.done * 1e-9

    def _keep_within(self) -> None:
        """Record no more calls than torch.profiler can put in order quickly."""
        if not self._has_stacks:
            self.note = (
                "no stacks are recorded, since the program has a profile function of its own"
            )
        elif self._count.is_full:
            self._has_stacks = False
            self.note = (
                f"no stacks are recorded: a step makes more than {_MOST_CALLS:,} calls in Python,"
                " which torch.profiler would take long to put in order"
            )
        elif self.steps > (possible := max(1, _MOST_CALLS // max(1, self._count.calls))):
            self.steps = possible
            self.note = (
                f"fewer steps are recorded than asked for: each makes {self._count.calls:,} calls"
                f" in Python, and torch.profiler would take long to put in order more than"
                f" {_MOST_CALLS:,}"
            )

    def _begin(self, step: int) -> None:
        """See `StepsProfile`; the first list is made before the profiler is on."""
        self._warnings.silence()
        births_of(self._recording).begin()
        self._is_noting = True
        census = self._census(None)
        super()._begin(step)
        if self._marks:
            self._censuses = [(self._marks[0][1], census)]

    def _mark(self, step: int) -> None:
        """A step ends and another begins: note when, and what is alive."""
        now = time.time_ns()
        if self._marks:
            census = self._census(self._marks[-1][0])
            self._censuses.append((now, census))
            self._identities = {a: k.identity for a, k in census.items() if k.identity is not None}
        self._marks.append((step, now))

    def _census(self, step: int | None) -> Census:
        """List what is alive; in a thread of its own, whose calls the profiler does not see."""
        found: list[Census] = []
        start_thread("census", lambda: found.append(_storages(self._recording, step))).join()
        if not found:
            raise RuntimeError("the storages alive cannot be listed")
        return found[0]

    def _end(self, state: str) -> None:
        """See `StepsProfile`; the names of modules are asked for while they live."""
        self._count.stop()
        for root in self._recording.objects.roots.alive() if state == "ending" else ():
            names = ((id(module), path) for path, module in walk(root, "", set()))
            self._modules.update((key, path or "(root)") for key, path in names)
        try:
            super()._end(state)
        finally:
            self._warnings.restore()
            if self._is_noting:
                self._is_noting = False
                births_of(self._recording).end()
            if state != "ending":
                self._censuses = []


class _TorchWarnings:
    """Keeps torch's library from writing to the program's stderr.

    While it counts memory it warns, once in a thousand times, of each block freed that it has not
    seen allocated.
    """

    def __init__(self) -> None:
        self._before: int | None = None

    def silence(self) -> None:
        """Let only errors pass."""
        level = self._level()
        if level is not None and self._before is None and level.value < _WARNINGS_OFF:
            self._before, level.value = level.value, _WARNINGS_OFF

    def restore(self) -> None:
        """As it was."""
        level = self._level()
        if level is not None and self._before is not None:
            level.value, self._before = self._before, None

    @staticmethod
    def _level() -> ctypes.c_int | None:
        """The number that the library compares with; None where it has none of that name."""
        library = Path(sys.modules["torch"].__file__ or "").parent / "lib" / "libc10.so"
        try:
            return ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "FLAGS_caffe2_log_level")
        except (OSError, ValueError):
            return None


def _storages(recording: Recording, step: int | None) -> Census:
    """What is alive on the CPU, and what for.

    Args:
        step: The step that has ended; None before the first that is recorded.
    """
    sight = births_of(recording).sighting(step)
    return {
        one.address: Known(one.bytes, one.category, one.module, one.identity)
        for one in storages_now(recording, (), None, sight)
        if one.device == "cpu" and one.bytes
    }
