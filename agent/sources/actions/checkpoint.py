"""Writes a checkpoint that is of one step, whole, and readable.

Rules of this file: the state is gathered in the training thread, between two steps, so that no
optimizer is writing it. The file is written under another name beside its place, flushed to the
device, read back by ``torch.load(weights_only=True)``, and only then put in its place: whoever
looks there finds what was there before, or all of the new one.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any

from ....errors import ActRefused
from ....messages.about.act import Change, Checkpoint
from .ledger import Applied
from .targets.scene import Found, Scene
from .targets.training_state import bytes_of, copied, state_of

_SLACK = 1 << 20
_UNWRITABLE = (OSError, RuntimeError, TypeError, AttributeError, pickle.PicklingError)
"""What torch.save raises where a file or what is in the state does not allow it."""


class Checkpointing:
    """Writes one checkpoint."""

    def __init__(self, asked: Checkpoint) -> None:
        if not asked.path or "\0" in asked.path:
            raise ActRefused("a checkpoint needs a path")
        self._asked = asked
        self._path = Path(os.path.abspath(os.path.expanduser(asked.path)))
        self._unfinished = self._path.with_name(
            f".{self._path.name}.{os.getpid()}-{time.monotonic_ns()}.unfinished"
        )
        self._torch: Any = sys.modules["torch"]
        self._copy: dict[str, Any] | None = None
        self._found: Found | None = None
        self._is_others = False

    def prepare(self, scene: Scene) -> None:
        """Look for everything that belongs to the state, and refuse what cannot be written."""
        scene.refuse_sharded(
            "a checkpoint",
            "Only all ranks together can write it: have the script call"
            " torch.distributed.checkpoint at a step of its choice.",
        )
        if scene.replica() is not None and not scene.is_replicated():
            raise ActRefused(
                "a checkpoint is not written from outside where DistributedDataParallel is over"
                " some of the ranks: the others may have other parts of the model",
                help="Nothing was written. Have the script write it.",
            )
        self._is_others = scene.rank() != 0 and scene.is_replicated()
        self._refuse_place()
        self._found = scene.found_state()

    def apply(self, scene: Scene) -> Applied:
        """Gather the state, and write or copy it."""
        if self._is_others:
            note = f"this is rank {scene.rank()}: all have the same state, and rank 0 writes it"
            return Applied(notes=(note,))
        assert self._found is not None
        state, notes = state_of(scene, self._found)
        self._refuse_size(bytes_of(state))
        if self._asked.copy_first:
            self._copy = copied(state)
        else:
            self._write(state)
        return Applied(notes=notes)

    def finish(self, scene: Scene, applied: Applied, until: float) -> Applied:
        """Write what was copied; then flush, read back, and put the file in its place."""
        self._found = None
        if self._is_others:
            return applied
        try:
            if self._copy is not None:
                self._write(self._copy)
                self._copy = None
            size = self._flush()
            self._verify()
            self._put_in_place()
        finally:
            with contextlib.suppress(OSError):
                self._unfinished.unlink(missing_ok=True)
        change = Change(what="written, read back", before=None, after=f"{self._path}, {size} bytes")
        return applied._replace(changes=(change,))

    def _refuse_place(self) -> None:
        folder = self._path.parent
        if not folder.is_dir():
            raise ActRefused(f"there is no folder {folder}")
        if self._path.is_dir():
            raise ActRefused(f"{self._path} is a folder")
        if self._path.exists() and not self._asked.force:
            raise ActRefused(
                f"{self._path} exists", help="Nothing was written. --force writes over it."
            )
        if not os.access(folder, os.W_OK):
            raise ActRefused(f"the process may not write to {folder}")

    def _refuse_size(self, size: int) -> None:
        disk = os.statvfs(self._path.parent)
        free = disk.f_bavail * disk.f_frsize
        if size + _SLACK > free:
            raise ActRefused(
                f"the checkpoint takes {size:,} bytes, and {self._path.parent} has {free:,} free"
            )

    def _write(self, state: dict[str, object]) -> None:
        try:
            self._torch.save(state, str(self._unfinished))
        except BaseException as error:  # a handler of signals may raise anything
            with contextlib.suppress(OSError):
                self._unfinished.unlink(missing_ok=True)
            if not isinstance(error, _UNWRITABLE):
                raise
            raise ActRefused(
                f"the checkpoint could not be written: {error}", help="Nothing was left behind."
            ) from None

    def _flush(self) -> int:
        """Have the device keep it; returns its size."""
        descriptor = os.open(self._unfinished, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _verify(self) -> None:
        """Read it back as anybody would who does not trust it."""
        try:
            self._torch.load(
                str(self._unfinished), map_location="cpu", weights_only=True, mmap=True
            )
        except Exception as error:  # noqa: BLE001 - whatever makes it useless
            first = str(error).strip().partition("\n")[0]
            raise ActRefused(
                f"torch.load(weights_only=True) cannot read what was written: {first}",
                help="Nothing was left behind. State of the script's own classes does that.",
            ) from None

    def _put_in_place(self) -> None:
        """Give it its name; the folder is flushed, too."""
        if self._asked.force:
            os.replace(self._unfinished, self._path)
        else:
            try:
                os.link(self._unfinished, self._path)  # fails where one has come meanwhile
            except FileExistsError:
                raise ActRefused(f"{self._path} has come into being meanwhile") from None
            except OSError:  # a file system without links
                os.rename(self._unfinished, self._path)
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
