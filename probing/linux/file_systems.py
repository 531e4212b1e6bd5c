"""Tells which file systems a record must not lie on.

Rules of this file: a record is mapped into the training, and what cannot be read or written of a
mapped file kills who touches it. So it lies only where space that has been reserved stays so, and
where no server or daemon has to answer. Reads what the kernel tells of mounts, and nothing else.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
_FAR = "a server or a daemon has to answer"
_COPIES = "reserved space is not kept for what is written again"
_WHY = {
    **dict.fromkeys(
        (
            "9p",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "fuse",
            "fuseblk",
            "gfs2",
            "gpfs",
            "lustre",
            "nfs",
            "nfs4",
            "ocfs2",
            "orangefs",
            "panfs",
            "pvfs2",
            "smb3",
            "vboxsf",
            "virtiofs",
            "wekafs",
        ),
        _FAR,
    ),
    **dict.fromkeys(("bcachefs", "btrfs", "zfs"), _COPIES),
}
_ESCAPED = re.compile(r"\\([0-7]{3})")


def unfit_for_records(path: Path, *, mounts: Path = MOUNTS) -> str | None:
    """Why a record must not lie there, with the kind of file system; None where it may.

    Args:
        path: It need not be there yet.
        mounts: Where the kernel tells of mounts.
    """
    kind = file_system_of(path, mounts=mounts)
    why = _WHY.get(kind.partition(".")[0]) if kind is not None else None
    return f"{kind}, where {why}" if why is not None else None


def file_system_of(path: Path, *, mounts: Path = MOUNTS) -> str | None:
    """The kind of file system that a path lies on; None where the kernel does not tell."""
    try:
        # A folder that turns into a link while it is resolved is an error, too (EINVAL).
        real = os.path.join(os.path.realpath(path), "")
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    best, kind = "", None
    for line in lines:
        before, dash, after = line.partition(" - ")
        words = before.split(" ")
        if not dash or len(words) < 5:
            continue
        place = os.path.join(_ESCAPED.sub(lambda m: chr(int(m[1], 8)), words[4]), "")
        if real.startswith(place) and len(place) >= len(best):  # the last of one place is on top
            best, kind = place, after.split(" ")[0]
    return kind
