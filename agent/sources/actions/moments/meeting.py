"""Where code that all ranks of a job run is run: at the end of one step of all of them.

Rules of this file: asks no other rank. Made in the thread of the eval; `step_ended` runs in the
training thread, which stands still at the agreed place for a visit. The code may begin there once
the word has come that all ranks stand there, and never before: in a collective that it begins, one
rank alone would meet those of the others' training. Until then the place may be named anew. A rank
that cannot tell the place says why, and so may who asks: then the code is run by itself.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .....messages.about.act import MARKS, Prepared
from ..targets.scene import Scene
from ..targets.searches import Searches
from .rendezvous import Rendezvous

if TYPE_CHECKING:
    from .....messages.about.eval import EvalCommit
    from .....ring.writer import RingWriter
    from .....tables import Table
    from ....recording.safe_points import Visit
    from ....recording.training import TorchTraining


class Meeting:
    """One rank on its way to the place.

    Attributes:
        apart: Why the code is run by itself; None where it may be run at the place.
        visit: For which the training stands still there; None until then.
        has_begun: Whether the code may begin there.
        settled: Set once it is known that it may, or that it is run by itself.
    """

    def __init__(self, training: TorchTraining, ranks: int, hold_s: float) -> None:
        self._scene = Scene(training, [], Searches(), 0.0, ring=_no_ring)
        self._points = training.safe_points
        self._hold_s = hold_s
        self._rendezvous = Rendezvous(lambda: self._scene.place()[1])
        self._lock = threading.RLock()  # a signal's handler may come back here
        self._agreed: EvalCommit | None = None
        self._is_over = False
        self.settled = threading.Event()
        self.has_begun = False
        self.visit: Visit | None = None
        self.apart = self._why_apart(ranks)
        if self.apart is None:
            self._points.begin_job(self)
        else:
            self.settled.set()

    @property
    def has_agreed(self) -> bool:
        """Whether the place is known."""
        return self._agreed is not None

    @property
    def held(self) -> EvalCommit | None:
        """By which commit the training stands still; None while it does not."""
        with self._lock:
            return self._agreed if self.visit is not None and self.visit.is_held() else None

    def prepared(self, number: int) -> Prepared:
        """Where this rank is now."""
        mark, position = self._scene.place()
        took_ns = self._scene.recording.rows.took_ns
        return Prepared(number=number, mark=mark, position=position, step_s=took_ns * 1e-9 or None)

    def agree(self, commit: EvalCommit, position: int) -> bool:
        """Set the place, or set it anew; says whether this rank has not come by it yet."""
        with self._lock:
            if self._is_over or self.has_begun or self.apart is not None:
                return False
            is_held = self.visit is not None
            if not self._rendezvous.agree(position, commit.more, is_undone=is_held):
                return False
            self._let_go()
            self._agreed = commit
            return True

    def begin(self, commit: EvalCommit) -> bool:
        """All stand at that place: let the code begin; says whether it does."""
        with self._lock:
            held, place = self.held, (commit.position, commit.more)
            if not self._is_over and held is not None and (held.position, held.more) == place:
                self.has_begun = True
                self.settled.set()
            return self.has_begun

    def go_apart(self, why: str) -> None:
        """Have the code run by itself, unless it may have begun."""
        with self._lock:
            if not self.has_begun:
                self.apart = self.apart or why
                self._let_go()
                self.settled.set()

    def step_ended(self) -> bool:
        """See `StepEndJob`."""
        with self._lock:
            if self._is_over or self.has_begun or self.apart is not None:
                return True
            if self._rendezvous.is_here() and self._agreed is not None:
                self.visit = self._points.request(self._hold_s)
                if not self._agreed.waits:  # of a command before there was a word to wait for
                    self.has_begun = True
                    self.settled.set()
            return False

    def failed(self, reason: str) -> None:
        """See `StepEndJob`."""
        self.go_apart(reason)

    def leave(self) -> bool:
        """The place is no longer waited for; says whether the code may not begin there."""
        with self._lock:
            self._is_over = True
            if not self.has_begun:
                self._let_go()
        self._points.end_job(self)
        return not self.has_begun

    def _let_go(self) -> None:
        """Let the training go on from where it stands; called with the lock."""
        visit, self.visit, self._agreed = self.visit, None, None
        if visit is not None:
            self._points.withdraw(visit)

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
