"""Keeps ``python.environment`` in the run folder, so that it answers after the process.

Rules of this file: runs in the agent's thread, and as the process ends in the thread that ends it;
never in the way of the training. It is looked at after the first step, when what a training is set
up with is there, and again and again at double the age each time, for some of it comes later.
"""

from __future__ import annotations

import time

from ...messages.codec import encode
from ...rundir.folders import ProcessFolder, put_private
from ...safety import forks
from ..recording.no_training import NoTraining
from ..recording.training import TorchTraining
from .environment import environment_rows

_FIRST_S = 1.0
_HOLD_S = 1.0


class KeptEnvironment:
    """The copy in the run folder.

    Args:
        folder: Where it is kept.
    """

    def __init__(self, folder: ProcessFolder) -> None:
        self._folder = folder
        self._written = b""
        self._since_s = time.monotonic()
        self._due_s = self._since_s

    def hasten(self) -> None:
        """Look the next time that somebody asks whether it is due."""
        self._due_s = time.monotonic()

    def keep_if_due(self, training: TorchTraining | NoTraining) -> float:
        """Look, if it is time for that; returns in how many seconds it is next.

        Raises:
            OSError: It cannot be written.
        """
        now = time.monotonic()
        if now >= self._due_s:
            self._due_s = now + max(_FIRST_S, now - self._since_s)
            self.keep(training)
        return max(0.0, self._due_s - time.monotonic())

    def keep(self, training: TorchTraining | NoTraining) -> None:
        """Write what has changed; of a process that does not train nothing is kept.

        Raises:
            OSError: It cannot be written.
        """
        if training.watched() is None:
            return
        data = encode(environment_rows(training))
        if data == self._written:
            return
        with forks.held_back(timeout_s=_HOLD_S):  # else a child would keep the file
            put_private(self._folder.environment, data)
        self._written = data
