"""Which findings of the doctor stand for a process, as the watch beside a node server leaves them.

Rules of this file: a file that is missing, damaged or out of date has no findings; the doctor is
never asked from here.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadRequest
from ..linux.foreign_files import read_file
from ..messages.about.standing import CERTAINTIES, Standing
from ..messages.codec import decode

if TYPE_CHECKING:
    from ..messages.about.job import NodeMember

_MOST_BYTES = 4 << 20
_MOST = 32
"""Findings that are told of a process."""
_RANKS = re.compile(r"\Aranks? ([\d,-]+)")
"""The ranks of a job that nobody has named, as a doctor calls them: `ranks 0-2,5`."""
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_SUREST_FIRST = tuple(CERTAINTIES)


def standing_in(path: Path | None) -> Standing | None:
    """What a watch has left in a file; None where it is of no use, or there is no watch."""
    if path is None:
        return None
    try:
        found = decode(Standing, read_file(path, _MOST_BYTES))
    except (OSError, BadRequest):
        return None
    return found if found.until_s >= time.time() else None


def findings_of(member: NodeMember, standing: Standing | None) -> dict[str, str]:
    """How sure each finding is that stands for a process, by the name of its rule."""
    name = f"process {member.pid}" if member.rank is None else f"rank {member.rank}"
    own = [
        one
        for one in (standing.findings if standing is not None else ())
        if _is_of(one.whole, name, member)
        and one.certainty in _SUREST_FIRST
        and (not one.members or name in one.members)
    ]
    own.sort(key=lambda one: -_SUREST_FIRST.index(one.certainty))  # the surest of a rule is kept
    found = {one.rule: one.certainty for one in own}
    return dict([*found.items()][-_MOST:])


def _is_of(whole: str, name: str, member: NodeMember) -> bool:
    """Whether a process is what a finding is of, or a rank of it; a job may have no name."""
    if member.rank is None or member.job is not None:
        return whole == (name if member.rank is None else member.job)
    return any(
        int(low) <= member.rank <= int(high or low)
        for words in _RANKS.findall(whole)[:1]
        for low, high in _RANGE.findall(words)
    )
