"""A survey of old objects that is kept fresh while several steps are watched.

Rules of this file: made in a thread of the agent's; asked in the training thread, which never waits
for a new one: without a survey it has to look at everything itself, which takes longer.
"""

from __future__ import annotations

import threading

from ...safe_points import AGENT_THREAD_PREFIX
from .living import Survey
from .storages import survey_now


class StandingSurvey:
    """Hands out a survey while it is good, and has a new one made when it no longer is."""

    def __init__(self) -> None:
        self._survey: Survey | None = survey_now()
        self._is_renewing = False
        self._is_closed = False

    def take(self) -> Survey | None:
        """The survey; None while there is none that is good."""
        survey = self._survey
        if survey is not None and survey.is_good():
            return survey
        if not (self._is_renewing or self._is_closed):
            self._is_renewing = True
            name = f"{AGENT_THREAD_PREFIX}survey"
            threading.Thread(target=self._renew, name=name, daemon=True).start()
        return None

    def close(self) -> None:
        """Make none any more, and forget the last."""
        self._is_closed = True
        self._survey = None

    def _renew(self) -> None:
        """Look at everything once, beside the training."""
        try:
            survey = survey_now()
        finally:
            self._is_renewing = False
        if not self._is_closed:
            self._survey = survey
