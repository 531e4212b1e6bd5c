"""What the agent of a process is and holds.

Rules of this file: state and the card that shows it; no thread and no socket. What could not be
done is a sentence in `problems`, for nothing is written to the host's streams or loggers.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable

from .. import process, rundir
from .._version import VERSION
from ..card import Card
from ..errors import ProbingError
from ..rundir import ProcessFolder
from ..settings import Setting, Settings, find
from .leaving import Leaving
from .no_training import NoTraining, torch_is_ready
from .training import TorchTraining


class Agent:
    """The agent of one process.

    Attributes:
        folder: The process's run folder.
        settings: As they are in force now.
        training: What is recorded.
        token: What TCP requests must carry; empty without a TCP listener.
        problems: What could not be done, one sentence each.
        listen: Where it listens for TCP, as ``host:port``, if it does.
        places: Folders of the operator's who attached: they hold what may be missing here.
        depart: Makes ready to leave the process, keeping the record or not.
    """

    def __init__(self, settings: Settings, folder: ProcessFolder) -> None:
        self.settings = settings
        self.folder = folder
        self.training: TorchTraining | NoTraining = NoTraining()
        self.token = ""
        self._changed: set[str] = set()
        self._initial = settings
        self.problems: list[str] = []
        self._ranks: tuple[int | None, ...] = ()
        self._started_ns = time.time_ns()
        self.listen: str | None = None
        self.places: tuple[str, ...] = ()
        self.depart: Callable[[bool], Leaving] | None = None
        self._recording_begins = threading.Lock()

    def record(self, *, late: bool = False) -> None:
        """Begin to record, once torch is there.

        Args:
            late: Whether a training may be in the middle of a step.
        """
        with self._recording_begins:
            if not (isinstance(self.training, NoTraining) and torch_is_ready()):
                return
            try:
                self.training = TorchTraining(self.folder, self.settings)
                if self.settings.recording:
                    self.training.start(late=late)
            except (ProbingError, OSError) as error:
                self.problems.append(f"nothing is recorded: {error}")

    def close(self) -> None:
        """Stop recording for good; the record stays, what led to the agent goes."""
        self.training.close()
        self.training = NoTraining()
        self.folder.socket.unlink(missing_ok=True)
        self.folder.token.unlink(missing_ok=True)

    def card(self) -> Card:
        """Who this process is."""
        self._ranks = _ranks()
        rank, local_rank, world_size = self._ranks
        return Card(
            pid=self.folder.pid,
            start_time=self.folder.start_time,
            boot_id=process.boot_id(),
            pid_namespace=process.pid_namespace(),
            uid=os.getuid(),
            host=socket.gethostname(),
            command=process.command(os.getpid()),
            executable=sys.executable,
            python=".".join(map(str, sys.version_info[:3])),
            version=VERSION,
            started_ns=self._started_ns,
            rank=rank,
            local_rank=local_rank,
            world_size=world_size,
            listen=self.listen,
            problems=(*self.problems, *self.training.problems()),
        )

    def write_card(self) -> None:
        """Put the card into the run folder."""
        self.folder.write_card(self.card())

    def refresh_card(self) -> None:
        """Write the card anew when what it says has changed since."""
        if self._ranks != _ranks() or self.training.problems():
            self.write_card()

    def prune(self) -> None:
        """Remove records of ended processes that are too old or too many."""
        keep = self.settings
        rundir.RunDirectory(self.folder.path.parent).prune(
            keep_hours=keep.keep_hours, keep_bytes=keep.keep_mib << 20
        )

    def change(self, name: str, text: str) -> None:
        """Change one setting while the process runs.

        Raises:
            BadSetting: It cannot be changed, or not to that value.
        """
        self.settings = self.settings.with_value(name, text)
        changed = find(name).name
        self._changed.add(changed)
        if changed == "recording" and self.settings.recording:
            self.training.start(late=True)
        elif changed == "recording":
            self.training.pause()
        elif changed == "gradients_every":
            self.training.sample_gradients(self.settings.gradients_every)
        elif changed == "sampling_hz":
            self.training.sample_stacks(self.settings.sampling_hz)

    def source_of(self, setting: Setting) -> str:
        """Where a setting's value comes from."""
        if setting.name in self._changed:
            return "changed at run time"
        was_given = getattr(self._initial, setting.name) != setting.default
        return "set at start" if was_given else "default"


def _ranks() -> tuple[int | None, int | None, int | None]:
    """Rank, local rank and world size, as the launcher set them."""
    return int_from_env("RANK"), int_from_env("LOCAL_RANK"), int_from_env("WORLD_SIZE")


def int_from_env(name: str) -> int | None:
    """An integer from the environment of the job."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None
