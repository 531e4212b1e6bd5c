"""How far an attach has come, as the files in the run folder of its process tell.

    attach.lock        locked by whoever attaches, as long as he does
    attach.json        who that is, and by which way the script was injected (`Note`)
    attach.py          the script: ordered, or injected and waiting; taking it away takes it back
    attach.py.begun    the script, while the agent starts
    attach.py.failed   a link: its target says why the agent did not start

Rules of this file: paths and files only. The last two are written by the process, by calls that
need neither a descriptor nor room in a file, which it may be short of. Whoever finds what a killed
attach has left takes it over, or clears it.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from ..linux.foreign_files import open_file, read_file
from ..messages.frozen import dataclass
from .folders import ProcessFolder, RunDirectory, put_private, write_private

Stage = Literal["ordered", "injected", "begun", "failed"]

_MOST_BYTES = 1 << 16
_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What whoever attaches leaves word of.

    Attributes:
        injector: His process.
        method: The way by which the script was injected; None as long as it was not.
    """

    injector: int
    method: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """An attach that has not come to its end.

    Attributes:
        stage: How far it has come.
        age_s: For how long it has been there.
        is_at_work: Whether whoever ordered it is still there.
        failure: Why the agent did not start, in the stage ``failed``.
    """

    stage: Stage
    age_s: float
    is_at_work: bool
    note: Note | None
    failure: dict[str, Any]

    def describe(self) -> str:
        """A sentence of it."""
        who = f" by process {self.note.injector}" if self.note and self.is_at_work else ""
        age = f"{max(0.0, self.age_s):.0f} s ago"
        if self.stage == "failed":
            return f"an attach failed {age}: {reason_of(self.failure)}"
        if self.stage == "begun":
            return f"an agent began to start {age} and has not finished"
        if self.stage == "injected" and self.note:
            return f"an agent was injected {age} by the way {self.note.method} and has not begun"
        end = "is under way" if self.is_at_work else "came to no end: whoever ordered it was killed"
        return f"an attach{who} that was ordered {age} {end}"


class AttachFiles:
    """The files of one process."""

    def __init__(self, folder: ProcessFolder) -> None:
        self.folder = folder
        self.script = folder.attach_script
        self.begun = folder.path / "attach.py.begun"
        self.failed = folder.path / "attach.py.failed"
        self.note = folder.path / "attach.json"
        self.lock = folder.path / "attach.lock"

    def read(self) -> Attach | None:
        """The attach that has not come to its end; None when there is none."""
        stages: tuple[tuple[Stage, Path], ...] = (
            ("failed", self.failed), ("begun", self.begun), ("ordered", self.script),
        )  # fmt: skip
        for stage, path in stages:
            try:
                changed = os.lstat(path).st_mtime
            except OSError:
                continue
            note = self._read_note()
            if stage == "ordered" and note is not None and note.method is not None:
                stage = "injected"  # noqa: PLW2901 - it is told by the note
            return Attach(
                stage=stage,
                age_s=time.time() - changed,
                is_at_work=self.is_taken(),
                note=note,
                failure=self.failure(),
            )
        return None

    def failure(self) -> dict[str, Any]:
        """What the process has left word of; empty when nothing."""
        try:
            facts = ast.literal_eval(os.readlink(self.failed))
        except (OSError, ValueError, SyntaxError, MemoryError, RecursionError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def write_note(self, note: Note) -> None:
        """Leave word; whole or not at all."""
        put_private(self.note, json.dumps(asdict(note)).encode())

    def order(self, text: str, note: Note) -> None:
        """Put the script in place, in the place of what an earlier one has left."""
        for path in (self.failed, self.begun):
            path.unlink(missing_ok=True)
        self.write_note(note)
        write_private(self.script, text.encode("ascii"))

    def clear(self) -> None:
        """Take the order back; a folder that holds nothing else goes with it."""
        for path in (self.script, self.begun, self.failed, self.note):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.lock.unlink()
            self.folder.path.rmdir()

    @contextlib.contextmanager
    def turn(self, directory: RunDirectory, until: float) -> Iterator[int | None]:
        """Be the only one who attaches to the process; waits for whoever does so now.

        To be entered with the rights of the process's user.

        Yields:
            The descriptor of the lock, for a child that is to keep it, too; None where the turn
            did not come in time.
        """
        fd = self._lock(directory, until)
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    def _lock(self, directory: RunDirectory, until: float) -> int | None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        while True:
            directory.create_folder(self.folder.pid, self.folder.start_time)
            fd = os.open(self.lock, flags, 0o600)
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(fd).st_ino == os.lstat(self.lock).st_ino:  # nobody has cleared it
                    return fd
            os.close(fd)
            if time.monotonic() > until:
                return None
            time.sleep(_POLL_S)

    def is_taken(self) -> bool:
        """Whether somebody attaches to the process now."""
        with contextlib.suppress(OSError):
            fd = open_file(self.lock)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(fd)
        return False

    def _read_note(self) -> Note | None:
        try:
            facts = json.loads(read_file(self.note, _MOST_BYTES))
            return Note(injector=int(facts["injector"]), method=facts["method"])
        except (OSError, ValueError, TypeError, KeyError):
            return None


def reason_of(facts: dict[str, Any]) -> str:
    """What a process says of why the agent did not start, on one line."""
    for kind, before in (("refused", ""), ("missing", ""), ("error", "the agent failed to start ")):
        if kind in facts:
            return before + " ".join(str(facts[kind]).split())
    return "it does not say why"
