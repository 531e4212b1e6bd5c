"""A survey of old objects that is kept fresh while several steps are watched.

Rules of this file: nobody waits for one. Asked in the training thread: without a survey that has to
look at everything itself, which takes longer.
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

    def has_come(self) -> bool:
        """Whether the first is there, whatever came of it."""
        return self._begun is None or self._begun.done()

    def good(self) -> Survey | None:
        """The survey; None while there is none that is good. One that is made meanwhile delays."""
        begun = self._begun
        if begun is None or not begun.done() or begun.exception() is not None:
            return None
        survey = begun.result()
        return survey if survey.is_good() else None

    def take(self) -> Survey | None:
        """The same; has a new one made in place of one that is not."""
        survey, begun = self.good(), self._begun
        if survey is None and begun is not None and begun.done():
            self._begun = self._surveyor.survey()
        return survey

    def close(self) -> None:
        """Make none any more, and forget the last."""
        self._begun = None
