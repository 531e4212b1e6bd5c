"""Where code that all ranks of a job run is run: at the end of one step of all of them.

Rules of this file: asks no other rank. Made in the thread of the eval; `step_ended` runs in the
training thread, which stands still at the agreed place for a visit. A rank that cannot tell the
place says why, and so may who asks: then the code is run by itself.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .....messages.about.act import MARKS, Prepared
from ..targets.scene import Scene
from ..targets.searches import Searches
from .rendezvous import Rendezvous

if TYPE_CHECKING:
    from .....ring.writer import RingWriter
    from .....tables import Table
    from ....recording.safe_points import Visit
    from ....recording.training import TorchTraining


class Meeting:
    """One rank on its way to the place.

    Attributes:
        apart: Why this rank has no place in common with others; None where it may have.
        is_apart: Whether the code is to be run by itself.
        visit: For which the training stands still there; None until then.
        has_agreed: Whether the place is known.
        settled: Set once it is known that there is a visit, or that there will be none.
    """

    def __init__(self, training: TorchTraining, ranks: int, hold_s: float) -> None:
        self._scene = Scene(training, [], Searches(), 0.0, ring=_no_ring)
        self._points = training.safe_points
        self._hold_s = hold_s
        self._rendezvous = Rendezvous(lambda: self._scene.place()[1])
        self._lock = threading.RLock()  # a signal's handler may come back here
        self._is_over = False
        self.settled = threading.Event()
        self.has_agreed = False
        self.visit: Visit | None = None
        self.apart = self._why_apart(ranks)
        self.is_apart = self.apart is not None
        if not self.is_apart:
            self._points.begin_job(self)

    def prepared(self, number: int) -> Prepared:
        """Where this rank is now."""
        mark, position = self._scene.place()
        took_ns = self._scene.recording.rows.took_ns
        return Prepared(number=number, mark=mark, position=position, step_s=took_ns * 1e-9 or None)

    def agree(self, position: int, more: int) -> bool:
        """Set the place; says whether this rank has not come by it yet."""
        with self._lock:
            self.has_agreed = not self._is_over and self._rendezvous.agree(position, more)
            return self.has_agreed

    def go_apart(self) -> None:
        """Have the code run by itself, unless it has begun."""
        with self._lock:
            self.is_apart = self.visit is None
            self.settled.set()

    def step_ended(self) -> bool:
        """See `StepEndJob`."""
        with self._lock:
            if self._is_over or self.is_apart:
                return True
            if not self._rendezvous.is_here():
                return False
            self.visit = self._points.request(self._hold_s)
            self.settled.set()
            return True

    def failed(self, reason: str) -> None:
        """See `StepEndJob`."""
        self.go_apart()

    def leave(self) -> None:
        """The place is no longer waited for."""
        with self._lock:
            self._is_over = True
        self._points.end_job(self)

    def _why_apart(self, ranks: int) -> str | None:
        """Why this rank has no place in common with the others that are asked."""
        size = self._scene.world_size()
        if size != ranks:
            return f"its job has {size} ranks, and {ranks} are asked"
        if not self._scene.training.is_moving():
            return "it makes no progress now"
        if self._scene.place()[0] == MARKS[1]:
            return "it has begun no collective of the job's process group"
        return None


def _no_ring(table: Table) -> RingWriter:
    """Code that is sent writes no table."""
    raise AssertionError(f"nothing of an eval is written to {table.name}")
