"""The processes beside a node server: one watches all of its machine, one keeps what is recorded.

Rules of this file: one thread starts them, looks after them and ends them, and lives as long as
they are to: the kernel has them end with it. One that ends by itself is started again, and that is
told.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from ...errors import UsageError
from ...history.stores.address import check_place
from ...linux import process
from ...rundir.folders import RunDirectory
from ...rundir.node_card import findings_path
from ...safety.guard import try_each
from ...safety.off_switch import without_agent
from ...settings import Settings, find

_LOOK_S = 0.5
_AGAIN_S = (1.0, 10.0, 60.0, 600.0)
"""How long after its end one is started again, the first time and later."""
_LONG_S = 600.0
"""Who has run for so long is started again as if for the first time."""
LAST_S = 20.0
"""What they may take at the end: less than a pod may."""
_KILLED_S = 5.0
_WATCH, _JOB_DIR = find("watch").env, find("job_dir").env


class Beside:
    """Watches and keeps all of this machine, as far as the settings ask for it.

    Args:
        tell: Called with a sentence for the user, from a thread.

    Raises:
        UsageError: A setting is not what it should be.
    """

    def __init__(
        self, settings: Settings, directory: RunDirectory, tell: Callable[[str], None]
    ) -> None:
        env = _environment(os.environ) | {_WATCH: settings.watch}
        self._all = [
            _Companion(name, words, env, tell)
            for name, words in _commands(settings, directory).items()
        ]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_after, daemon=True)

    def start(self) -> None:
        """Start them."""
        if self._all:
            self._thread.start()

    def end(self) -> None:
        """Have them look and keep what there is for the last time."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(LAST_S + _KILLED_S)

    def _look_after(self) -> None:
        """The thread."""
        while not self._is_over.is_set():
            try_each(companion.look for companion in self._all)
            self._is_over.wait(_LOOK_S)
        _end([one.process for one in self._all if one.process is not None])


class _Companion:
    """One of them.

    Attributes:
        process: None while there is none.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        env: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> None:
        self._name, self._words, self._env, self._tell = name, words, env, tell
        self.process: subprocess.Popen[bytes] | None = None
        self._ended = ""
        self._ends = 0
        self._began = self._due = 0.0

    def look(self) -> None:
        """Start it where that is due; notice its end."""
        now = time.monotonic()
        if self.process is None:
            if now >= self._due:
                self._begin(now)
        elif (code := self.process.poll()) is not None:
            how = process.signal_words(-code) if code < 0 else f"exit code {code}"
            self._note(f"has ended with {how}", now)

    def _begin(self, now: float) -> None:
        """Start it; told where it is not the first time, for the end of a server is no fault."""
        if self._ended:
            self._tell(f"{self._name} {self._ended}; it is started again")
        self._began = now
        own = [sys.executable, "-m", "probing", "-t", "all", *self._words]
        first = ["-m", "probing.safety.parent_death", f"{os.getpid()}", f"{int(signal.SIGTERM)}"]
        try:
            self.process = subprocess.Popen(
                [sys.executable, *first, *own],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us alone, and they make a last round
                env=self._env,
            )
        except OSError as error:
            self._note(f"could not be started ({error.strerror or error})", now)

    def _note(self, ended: str, now: float) -> None:
        """It runs no more: when it is to be started again."""
        self.process, self._ended = None, ended
        if now - self._began > _LONG_S:
            self._ends = 0
        self._due = now + _AGAIN_S[min(self._ends, len(_AGAIN_S) - 1)]
        self._ends += 1


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask each to end, and see to it."""
    for one in processes:
        one.terminate()
    end = time.monotonic() + LAST_S
    for one in processes:
        try:
            one.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()


def _commands(settings: Settings, directory: RunDirectory) -> dict[str, list[str]]:
    """What each is to do, by its name.

    Raises:
        UsageError: A setting is not what it should be.
    """
    found = {}
    watching = []
    if settings.watch:
        if not settings.watch.startswith(("http://", "https://")):
            text = "PROBING_WATCH is not an address that begins with http:// or https://."
            raise UsageError(text)
        # Its address may be a secret, and other users can read a command line.
        watching += ["--webhook-env", _WATCH]
    if settings.export_findings:
        watching += ["--standing", str(findings_path(directory))]
    if watching:
        found["the watch (doctor --watch)"] = ["doctor", "--watch", *watching]
    if settings.history:
        check_place(settings.history)
        found["the keeper of the history (export --every)"] = _keeping(settings)
    return found


def _keeping(settings: Settings) -> list[str]:
    """The command that keeps what is recorded on this machine."""
    words = ["export", "--compact", "--every", f"{settings.history_every_s:g}"]
    if settings.history_keep_days:
        words += ["--keep-days", f"{settings.history_keep_days}"]
    if settings.history_keep_mib:
        words += ["--keep-bytes", f"{settings.history_keep_mib}MiB"]
    return [*words, settings.history]


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What they see: nothing that names other machines, which have node servers of their own."""
    return {k: v for k, v in without_agent(environment).items() if k != _JOB_DIR}
