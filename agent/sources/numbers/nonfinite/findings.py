"""The rows of python.numerics: each value that was found not to be finite.

Rules of this file: runs in the training thread, where something was found.
"""

from __future__ import annotations

import time
from typing import Any

from .....ring.format import DONE, NULL_FLOAT, NULL_INT
from .....ring.writer import RingWriter
from .....tables import NUMERIC_KINDS, NUMERIC_STAGES, ROLES
from ...shared.recording import Recording
from .finite import Bad
from .finite_hooks import Watched

_MOST_ROWS = 64


class Findings:
    """The rows of one arming."""

    def __init__(self, recording: Recording, ring: RingWriter, arming: int) -> None:
        self.count = 0
        self.step: int | None = None
        self._recording = recording
        self._ring = ring
        self._arming = arming

    def add(  # noqa: PLR0917 - each is a column
        self,
        watched: Watched | None,
        stage: str,
        role: str,
        what: str,
        bad: Bad,
        given: str = "",
        given_max: float | None = None,
    ) -> None:
        """Write a row."""
        if self.count >= _MOST_ROWS:
            return
        intern, step = self._recording.names.intern, self._recording.step
        self.count += 1
        self.step = step if self.step is None else self.step
        values: dict[str, Any] = {
            "stage": NUMERIC_STAGES.index(stage),
            "role": ROLES.index(role),
            "what": NUMERIC_KINDS.index(what),
            "tensor": intern(bad.name),
            "nan_count": bad.nan_count,
            "inf_count": bad.inf_count,
            "share": (bad.nan_count + bad.inf_count) / bad.numel if bad.numel else NULL_FLOAT,
            "finite_max": NULL_FLOAT if bad.finite_max is None else bad.finite_max,
            "shape": intern(bad.shape),
            "given_max": NULL_FLOAT if given_max is None else given_max,
            "arming": self._arming or NULL_INT,
        }
        if given:
            values["given"] = intern(given)
        if watched is not None:
            values["module"] = intern(watched.name)
            values["class"] = intern(watched.kind)
            values["root"] = intern(watched.root)
        word = self._ring.open_row(time.perf_counter_ns(), step)
        self._ring.close_named(word, DONE, values)
