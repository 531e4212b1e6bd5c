"""Writes python.samples: where every thread is, some times per second.

Rules of this file: one thread of the agent's own, only while somebody has asked for samples; looks
at frames and at nothing they hold, and keeps none of them.
"""

from __future__ import annotations

import os
import threading
import time
from types import CodeType, FrameType

from .... import own_files
from ....ring.format import DONE, NULL_NAME
from ....ring.writer import RingWriter
from ....safety.other_stacks import current_stacks
from ....safety.this_thread import thread_name
from ...recording.safe_points import AGENT_THREAD_PREFIX
from ..regular_looks import RegularLooks
from ..shared.recording import Recording

_DEEPEST = 64
_MOST_STACKS = 5_000
_MOST_LABELS = 20_000


class _Labels(dict[CodeType, str]):
    """What code is called in a stack; nothing for code of ours."""

    def __missing__(self, code: CodeType) -> str:
        is_ours = own_files.is_ours(code.co_filename)
        label = "" if is_ours else f"{code.co_name} ({os.path.basename(code.co_filename)})"
        if len(self) < _MOST_LABELS:
            self[code] = label
        return label


class StackSamples(RegularLooks):
    """Takes samples while recording is on and a rate is set.

    Attributes:
        hz: Samples per second; 0 for none.
    """

    def __init__(self, recording: Recording, ring: RingWriter) -> None:
        super().__init__("stack samples", "samples")
        self.hz = 0.0
        self._recording = recording
        self._ring = ring
        self._stacks: set[str] = set()
        self._labels = _Labels()
        self.guard.on_fault = ring.count_dropped

    def set_rate(self, hz: float) -> None:
        """Take so many samples per second from now on."""
        self.hz = hz
        if self.is_on:
            self.stop()
            self.start()

    def start(self) -> None:
        """Begin, if a rate is set."""
        self.is_on = True
        if self.hz > 0:
            self._begin(1.0 / self.hz, first_s=1.0 / self.hz)

    def _look(self) -> None:
        """One sample, and what it has cost: who trains waits meanwhile."""
        start = time.thread_time_ns()
        self._sample(time.perf_counter_ns())
        took = time.thread_time_ns() - start
        self._recording.costs.count("stack samples", took, is_within=False)

    def _sample(self, now: int) -> None:
        stacks = current_stacks()
        del stacks[threading.get_ident()]  # this very frame, which would hold itself and all others
        known = {thread.ident: thread for thread in threading.enumerate()}
        for ident, stack in stacks.items():
            thread = known.get(ident)
            name = f"thread {ident:#x}" if thread is None else thread_name(thread)
            if not name.startswith(AGENT_THREAD_PREFIX):
                native = 0 if thread is None else thread.native_id or 0
                self._write(now, name, native, stack)

    def _write(self, now_ns: int, name: str, native_id: int, frames: list[FrameType]) -> None:
        stack: list[str] = []
        leaf: FrameType | None = None
        for frame in frames:
            label = self._labels[frame.f_code]
            if label:
                leaf = leaf or frame
                stack.append(label)
                if len(stack) == _DEEPEST:
                    break
        if leaf is None:
            return
        intern = self._recording.names.intern
        word = self._ring.open_row(now_ns, self._recording.step, native_id)
        values = {
            "thread": intern(name),
            "func": intern(leaf.f_code.co_name),
            "file": intern(leaf.f_code.co_filename),
            "lineno": leaf.f_lineno or 0,
            "stack": self._number_of(";".join(reversed(stack))),
        }
        self._ring.close_named(word, DONE, values)

    def _number_of(self, stack: str) -> int:
        """The number of a stack's text, as long as there are not too many."""
        if stack not in self._stacks:
            if len(self._stacks) >= _MOST_STACKS:
                return NULL_NAME
            self._stacks.add(stack)
        return self._recording.names.intern(stack)
