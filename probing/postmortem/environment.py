"""What a process ran in, as its run folder says: for one that has ended, or does not answer.

Rules of this file: operator's side only; a file that makes no sense is as good as none.
"""

from __future__ import annotations

import dataclasses
import time

from ..errors import BadRequest
from ..linux.foreign_files import read_file
from ..messages.codec import decode
from ..messages.common import LiveRows
from ..rundir.folders import ProcessFolder
from ..tables import ENVIRONMENT

_MOST_BYTES = 8 << 20


def kept_environment(folder: ProcessFolder) -> LiveRows | None:
    """The last rows of python.environment that were kept; None where none were."""
    try:
        live = decode(LiveRows, read_file(folder.environment, _MOST_BYTES))
        kept_s = folder.environment.stat().st_mtime
    except (OSError, BadRequest):
        return None
    if live.table != ENVIRONMENT.name or any(len(row) != len(live.columns) for row in live.rows):
        return None
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(kept_s))
    return dataclasses.replace(live, note=f"{ENVIRONMENT.full_name} is as it was kept at {at}")
