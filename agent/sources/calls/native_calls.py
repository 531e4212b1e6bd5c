"""Has module calls recorded by the C part: another way to the same rows.

Rules of this file: may refuse; then calls are recorded in Python, and `way` says why. What the C
part does not take (roots, modules that are not known yet, all calls while they are timed on the
device) it leaves to the wrapper in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....ring.native import IN_C
from ....safety.handlers import is_of_handler
from ...genuine import genuine
from ..memory.sampler import MemorySampler
from ..shared.recording import Recording
from .backward.module_backward import ModuleBackward
from .names.module_names import ModuleNames

_PER_THREAD: Any = genuine("_thread", "_local")
"""What `threading.local` is, unless gevent or eventlet has one per greenlet in its place."""


class NativeCalls:
    """The wrapper as the C part runs it, where that was built."""

    def __init__(
        self,
        recording: Recording,
        memory: MemorySampler,
        names: ModuleNames,
        backward: ModuleBackward,
        *,
        is_wanted: bool,
    ) -> None:
        self._recording = recording
        self._memory = memory
        self._names = names
        self._backward = backward
        self._part: Any = IN_C if is_wanted else None
        self._why_python = "the C part was not built for it" if is_wanted else "PROBING_NATIVE is 0"
        if self._part is not None and not isinstance(recording.threads, _PER_THREAD):
            self._part = None  # it keeps what it has asked for, by threads of the kernel
            self._why_python = "threading.local is of greenlets here, as gevent has it"
        self._has_handed = False

    def way(self) -> str:
        """How calls are recorded, for whoever asks."""
        return "in C" if self._part is not None else f"in Python: {self._why_python}"

    def take_over(
        self,
        wrapper: Callable[..., Any],
        original: Callable[..., Any],
        *,
        is_direct: bool,
        failed: Callable[[int, int, int], None],
        fault: Callable[[], None],
    ) -> None:
        """Run a wrapper from now on, in the place of one that led elsewhere.

        Args:
            is_direct: Whether the original is torch's own, whose frame is saved.
            failed: Called where a recorded call has ended by an exception.
            fault: Called where the C part has made a mistake.
        """
        if self._part is None:
            return
        trace, threads = self._recording.trace, self._recording.threads
        if self._has_handed:
            self._part.uninstall()
        try:
            self._part.install(
                function=wrapper,
                original=original,
                is_direct=is_direct,
                layout=tuple([(f.column.name, f.offset, f.code) for f in trace.layout.fields]),
                ring=trace.buffer,
                words=trace.words,
                now=self._recording.now,
                known=self._names.known,
                state_of_thread=lambda: threads.state,
                sample=self._memory.sample,
                note_failure=failed,
                fault=fault,
                is_programs=is_of_handler,
            )
        except (BufferError, RuntimeError, ValueError, TypeError) as error:
            self._part, self._why_python = None, str(error)
        else:
            self._has_handed = True
            self._names.on_change = self._part.changed
            self._backward.hand_to_c(self._part)
            self.run(is_on=True)

    def run(self, *, is_on: bool) -> None:
        """Record in C from now on, or leave it to Python."""
        if self._part is not None:
            self._part.run(is_on=is_on)

    def close(self) -> None:
        """Take the C part off for good."""
        if self._part is not None:
            self._part.uninstall()
