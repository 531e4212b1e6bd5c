"""Where a process stands in its job, by what it has seen of itself so far.

Rules of this file: cheap, for it is asked with each question; any thread may run it.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ..cluster.launchers import Place, place_now, torch_group
from ..rundir.folders import ProcessFolder
from ..settings import Settings

_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"


class Standing(NamedTuple):
    """What a card says of a process in its job.

    Attributes:
        has_trained: See `probing.messages.card.Card`.
        is_recording: Likewise.
    """

    has_trained: bool
    is_recording: bool
    place: Place


class Standings:
    """Tells where this process stands; what was so once stays when its process group has ended."""

    def __init__(self, folder: ProcessFolder) -> None:
        self._folder = folder
        self._group: tuple[int, int] | None = None
        self._has_trained = self._is_helper = False
        self._error_files: dict[str, bool] = {}

    def now(self, settings: Settings, step: int | None) -> Standing:
        """Where it stands.

        Args:
            settings: As they are in force now; they say what the job is called, if its user does.
            step: The step in progress; None where there is none.
        """
        group = self._group = torch_group() or self._group
        self._has_trained = self._has_trained or group is not None or bool(step)
        place = place_now(settings.job, group, is_helper=self._is_started_by_rank)
        return Standing(self._has_trained, settings.recording, place)

    def error_file(self) -> str | None:
        """Where torchrun has this rank write the exception that ends it.

        None in what a rank has started, which finds the rank's own file in its environment. It is
        asked for early, while those that started this process are there, and kept.
        """
        path = os.environ.get(_ERROR_FILE)
        if not path:
            return None
        if path not in self._error_files:
            from ..rundir.elders import is_given_by_launcher

            self._error_files[path] = is_given_by_launcher(_ERROR_FILE, path)
        return path if self._error_files[path] else None

    def _is_started_by_rank(self, group_size: int) -> bool:
        """See `is_helper`; known for good once it is so, for those that started it may end."""
        from ..rundir.elders import is_helper

        self._is_helper = self._is_helper or is_helper(self._folder, group_size)
        return self._is_helper
