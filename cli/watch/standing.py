"""The file that has what stands after each look of a watch.

Rules of this file: it is replaced whole, so that whoever reads it sees one look; its owner alone
can read it. That it cannot be written is told once, and the watch goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...diagnosis.doctor.watching import Event
from ...messages.about.standing import Standing, StandingFinding
from ...messages.codec import encode
from ...rundir.folders import put_private
from ..output import terminal

_HOLDS_S, _HOLDS_FOR = 300.0, 4
"""So long, and for so many looks, it holds what no later look has changed."""


class StandingFile:
    """The file, if one is wanted.

    Args:
        path: Empty for none.
        every_s: How often there is a look.
    """

    def __init__(self, path: str, every_s: float) -> None:
        self._path = Path(path) if path else None
        self._holds_s = max(_HOLDS_S, _HOLDS_FOR * every_s)
        self._is_told = False

    def write(self, standing: Iterable[Event], now_s: float) -> None:
        """Put what stands now in place of what stood."""
        if self._path is None:
            return
        found = tuple(map(_plain, standing))
        text = encode(Standing(time_s=now_s, until_s=now_s + self._holds_s, findings=found))
        try:
            put_private(self._path, text)
        except OSError as error:
            if not self._is_told:
                terminal.note(f"{self._path} cannot be written: {error.strerror or error}")
            self._is_told = True


def _plain(event: Event) -> StandingFinding:
    """A finding as it stands in the file."""
    finding = event.finding
    return StandingFinding(
        rule=finding.rule,
        certainty=finding.certainty,
        whole=finding.whole,
        members=tuple(sorted(finding.members)),
        summary=finding.summary,
        began_s=round(event.began_s, 3),
    )
