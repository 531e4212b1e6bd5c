"""The run folder of this very process.

Rules of this file: runs in the process that has the agent; paths and files only.
"""

from __future__ import annotations

import os

from ..linux import process
from ..settings import Settings
from .folders import ProcessFolder, RunDirectory
from .places import Chosen, choose, way_out


def own_folder(settings: Settings) -> ProcessFolder:
    """The run folder of this process, made if need be.

    Raises:
        UnsafeRunDirectory: The run directory is not safe to use.
        OSError: It cannot be made.
    """
    directory = RunDirectory(_place(settings).path)
    return directory.create_folder(os.getpid(), process.start_time(os.getpid()) or 0)


def lasting_home(settings: Settings) -> str:
    """The run directory that is asked for, or without any the one that outlives a login."""
    return str(choose(settings, runtime_dir=None).path)


def moved(settings: Settings, folder: ProcessFolder) -> list[str]:
    """What to say where the record is not in the place that was asked for."""
    passed = _place(settings).passed
    if not passed:
        return []
    (first, why), *_ = passed
    asked = f"PROBING_HOME, {first}" if settings.home else str(first)
    return [f"the record is in {folder.path}, not in {asked}: {why}; {way_out(first)}"]


def _place(settings: Settings) -> Chosen:
    """Where the run directory is to be."""
    return choose(settings, runtime_dir=os.environ.get("XDG_RUNTIME_DIR"))
