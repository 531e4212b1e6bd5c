"""How far SQL workers stand behind the training: near for what is short, far for what is not.

Rules of this file: standard library alone; it is loaded before the worker has taken its memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

NEAR, FAR = 5, 15
"""Niceness: a thread of the training on the same core has 3 times as much of it, or 28 times."""
PROMPT_S = 0.5
"""Processor time that statements have near the training: what the whole first one takes."""
_SHARE = 0.02
"""Of a core; by so much of it that time comes back."""
_STACK_BYTES = 8 << 20
"""What a main thread has: a statement may be deeply nested."""


def stand_near() -> None:
    """Stand behind the training, as each worker does from its beginning."""
    os.nice(NEAR)


class Courtesy:
    """Runs one piece of work after the other, near the training until its time is used up.

    The kernel lets nobody come nearer again without a right to it. So each piece has a thread of
    its own, which begins where the thread that made it is.

    Args:
        prompt_s: Processor time, in seconds, that is had at once.
    """

    def __init__(self, prompt_s: float = PROMPT_S) -> None:
        self._most_s = self._left_s = prompt_s
        self._ended = time.monotonic()
        threading.stack_size(_STACK_BYTES)

    def run(self, work: Callable[[], None]) -> None:
        """Do it; whatever it raises comes out of here."""
        raised: list[BaseException] = []

        def whole() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised again below
                raised.append(error)

        back_s = _SHARE * (time.monotonic() - self._ended)
        left_s = min(self._most_s, self._left_s + back_s)
        began = time.process_time()
        thread = threading.Thread(target=whole, name="statement")
        thread.start()
        while thread.is_alive() and (rest_s := left_s - (time.process_time() - began)) > 0:
            thread.join(max(rest_s, 0.01))
        if thread.is_alive():
            _stand_back()
            thread.join()
        self._left_s = max(0.0, left_s - (time.process_time() - began))
        self._ended = time.monotonic()
        if raised:
            raise raised[0]


def _stand_back() -> None:
    """Have all threads but this one stand far behind; those that they start do so, too."""
    own = threading.get_native_id()
    for entry in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if int(entry.name) != own:
                os.setpriority(os.PRIO_PROCESS, int(entry.name), FAR)
