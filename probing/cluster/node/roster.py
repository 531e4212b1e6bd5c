"""The processes of this machine that a node server answers for.

Rules of this file: the run directory and /proc are looked at anew each time; only `with_states`
asks anybody. It changes nothing but that it removes records which nobody keeps.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from ..._version import VERSION
from ...errors import NoSuchProcess
from ...messages.about.job import MembersAnswer, NodeMember
from ...rundir.folders import ProcessFolder, RunDirectory
from ...rundir.pruning import prune
from ...settings import Settings
from ..job.membership import Member
from ..job.providers.this_machine import members_here


class Roster:
    """Who is there.

    Args:
        stalled_s: For how long the process of a run folder's name has made no progress.
    """

    def __init__(self, directory: RunDirectory, stalled_s: Callable[[str], float | None]) -> None:
        self._directory = directory
        self._stalled_s = stalled_s

    def folder(self, key: str) -> ProcessFolder:
        """The run folder of a process.

        Raises:
            NoSuchProcess: There is none of that name.
        """
        folder = self._directory.named(key) if "/" not in key else None
        if folder is None or folder.read_card() is None:
            raise NoSuchProcess(f"{key} on {socket.gethostname()}")
        return folder

    def members(self, *, with_states: bool) -> MembersAnswer:
        """All processes, alive or ended."""
        members = members_here(self._directory, states=with_states)
        found = [entry for m in members if (entry := self._entry(m)) is not None]
        return MembersAnswer(
            host=socket.gethostname(), pid=os.getpid(), version=VERSION, members=tuple(found)
        )

    def alive(self) -> list[ProcessFolder]:
        """The run folders of the processes that run."""
        return [folder for folder in self._directory.folders() if folder.is_alive()]

    def prune(self, keep: Settings) -> None:
        """Remove records that are too old or too many: it may be long until an agent starts."""
        for place in self._directory.each():
            with contextlib.suppress(OSError):
                prune(place, keep_hours=keep.keep_hours, keep_bytes=keep.keep_mib << 20)

    def _entry(self, member: Member) -> NodeMember | None:
        if member.pid is None:
            return None
        key = Path(member.endpoint).name
        return NodeMember(
            key=key,
            rank=member.rank,
            local_rank=member.local_rank,
            world_size=member.world_size,
            job=member.job,
            attempt=member.attempt,
            pid=member.pid,
            host=member.host,
            started_ns=member.started_ns,
            is_alive=bool(member.is_alive),
            state=member.state_word,
            step=member.step,
            stalled_s=self._stalled_s(key),
        )
