"""A survey of old objects that is kept fresh while several steps are watched.

Rules of this file: made in a thread of the agent's; asked in the training thread, which never waits
for a new one: without a survey it has to look at everything itself, which takes longer.
"""

from __future__ import annotations

from concurrent.futures import Future

from .living import Survey
from .surveyor import Surveyor


class StandingSurvey:
    """Hands out a survey while it is good, and has a new one made when it no longer is."""

    def __init__(self, surveyor: Surveyor) -> None:
        self._surveyor = surveyor
        self._begun: Future[Survey] | None = surveyor.survey()
        self._begun.exception()  # waits until it is there, whatever came of it

    def take(self) -> Survey | None:
        """The survey; None while there is none that is good."""
        begun = self._begun
        if begun is None or not begun.done():
            return None
        if begun.exception() is None and (survey := begun.result()).is_good():
            return survey
        self._begun = self._surveyor.survey()
        return None

    def close(self) -> None:
        """Make none any more, and forget the last."""
        self._begun = None
