"""What begins and what ends, from one report to the next.

Rules of this file: pure. A finding begins once it was in two reports one after the other, so that a
moment tells nobody at night; one that is certain begins at once. It ends once it was missing in
two; a report in which its rule could not be judged for its job or process says nothing of it.
Nothing is over because a process that crashed has been forgotten; it is once its job runs again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ...messages.frozen import dataclass
from .findings import CERTAINTIES, Certainty, Finding
from .not_looked_at import NOT_THOROUGH

if TYPE_CHECKING:
    from .report import Report

_ENOUGH = 2
_STANDS_S, _STANDS_FOR = 300.0, 4
"""So long, and for so many reports, a finding is taken to stand of which nothing more is told."""
_CRASH_S = 86_400.0
"""The same of a crash, which nothing ends: its process is forgotten soon."""
_ORDER = tuple(CERTAINTIES)
_SEVERITIES = {"certain": "critical", "likely": "warning", "possible": "info"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A finding has begun, or has ended.

    Attributes:
        about: Whom it is about.
        time_s: When that was seen, since the epoch.
        began_s: When it was first seen.
        until_s: Until when it is taken to stand, where nothing more is told of it.
    """

    kind: Literal["begun", "ended"]
    finding: Finding
    about: str
    time_s: float
    began_s: float
    until_s: float = math.inf


@dataclass(slots=True)
class _Known:
    """A finding that was seen.

    Attributes:
        finding: As it was told: receivers know its end by what they were told of its beginning.
        about: Whom the report was about, in which it was told.
        seen: In how many reports, one after the other.
        missed: In how many it was missing since.
        is_told: Whether its beginning was told.
    """

    finding: Finding
    began_s: float
    seen: int = 0
    missed: int = 0
    is_told: bool = False
    about: str = ""

    @property
    def is_forgotten(self) -> bool:
        """Whether only its end is to be told: of a crash, whose process is looked at no more."""
        return self.missed >= _ENOUGH


class Watch:
    """Keeps what was found, and says what has changed."""

    def __init__(self, least: Certainty = "likely", *, every_s: float = 0.0) -> None:
        """Begin with nothing known.

        Args:
            least: What is less sure is not told.
            every_s: How often there is a report.
        """
        self._stands_s = max(_STANDS_S, _STANDS_FOR * every_s)
        self._sure = _ORDER[: _ORDER.index(least) + 1]
        self._known: dict[tuple[str, str], _Known] = {}
        """By rule and job, or process: of which ranks a finding is may change."""

    def changes(
        self,
        findings: Iterable[Finding],
        *,
        missed: Mapping[str, frozenset[str]],
        about: str,
        now_s: float,
    ) -> tuple[Event, ...]:
        """What has begun and ended by a report, the gravest first.

        Args:
            missed: The names of the rules that the report has not judged, by job or process; those
                that it is not about are none.
            about: Whom the report is about.
        """
        events: list[Event] = []
        sure = sorted((one for one in findings if one.certainty in self._sure), key=_order)
        present = {(one.rule, one.whole): one for one in reversed(sure)}
        for key, finding in present.items():
            known = self._known.setdefault(key, _Known(finding, now_s))
            if known.is_forgotten:  # it has crashed again
                known = self._known[key] = _Known(finding, now_s)
            known.seen, known.missed = known.seen + 1, 0
            if not known.is_told and (finding.certainty == "certain" or known.seen >= _ENOUGH):
                known.is_told, known.finding, known.about = True, finding, about
                events.append(self._event("begun", known, now_s))
        for key, known in list(self._known.items()):
            rule, whole = key
            if key in present or rule in missed.get(whole, ()):
                continue
            known.seen, known.missed = 0, known.missed + 1
            if known.missed >= _ENOUGH or not known.is_told:
                is_lost = known.finding.group == "crashed" and whole not in missed
                if known.is_told and is_lost and now_s < known.began_s + _CRASH_S:
                    continue
                del self._known[key]
                if known.is_told and not is_lost:
                    events.append(self._event("ended", known, now_s))
        return tuple(sorted(events, key=lambda event: event.finding.order))

    def standing(self, now_s: float) -> tuple[Event, ...]:
        """The beginnings of all that was told and is not over, for who forgets them otherwise."""
        return tuple(
            self._event("begun", one, now_s)
            for one in self._known.values()
            if one.is_told and not one.is_forgotten
        )

    def _event(self, kind: Literal["begun", "ended"], known: _Known, now_s: float) -> Event:
        lasts_s = _CRASH_S if known.finding.group == "crashed" else self._stands_s
        return Event(
            kind=kind,
            finding=known.finding,
            about=known.about,
            time_s=now_s,
            began_s=known.began_s,
            until_s=now_s + lasts_s,
        )


def _order(finding: Finding) -> tuple[int, float]:
    return finding.order


def left_to_one_look(report: Report) -> tuple[str, ...]:
    """The names of the rules that no watch judges, since they wait for steps or for time."""
    own = (one.rules for one in report.not_looked_at if one.why == NOT_THOROUGH)
    return tuple(name for names in own for name in names)


def as_json(event: Event) -> dict[str, Any]:
    """An event as one JSON object."""
    finding = event.finding
    return {
        "event": event.kind,
        "about": event.about,
        "rule": finding.rule,
        "certainty": finding.certainty,
        "summary": finding.summary,
        "since_step": finding.since_step,
        "evidence": list(finding.evidence),
        "next": finding.next,
        "fix": finding.fix,
        "time_s": round(event.time_s, 3),
        "began_s": round(event.began_s, 3),
    }


def as_slack(event: Event) -> dict[str, Any]:
    """An event as Slack's incoming webhooks take it (https://api.slack.com/messaging/webhooks)."""
    finding = event.finding
    head = f"*{finding.certainty}* `{finding.rule}`" if event.kind == "begun" else "*over*"
    lines = [f"{head}: {_slack_text(finding.summary)}"]
    if event.kind == "begun":
        lines += [f"• {_slack_text(sentence)}" for sentence in finding.evidence[:3]]
        lines += [f"fix: {_slack_text(finding.fix)}"] if finding.fix else []
        lines.append(f"`{finding.next}`")
    return {"text": "\n".join(lines)}


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_alert(event: Event) -> dict[str, Any]:
    """An event as one of those that Alertmanager's `/api/v2/alerts` takes a list of.

    It takes an alert for resolved at its `endsAt`, or after five minutes (its `resolve_timeout`),
    unless the same labels come again.
    """
    finding = event.finding
    labels = {
        "alertname": "probing",
        "rule": finding.rule,
        "severity": _SEVERITIES[finding.certainty],
        "about": event.about,
        "who": finding.who or event.about,
    }
    return {
        "labels": labels,
        "annotations": {
            "summary": finding.summary,
            "description": "; ".join(finding.evidence),
            "fix": finding.fix,
            "next": finding.next,
        },
        "startsAt": _rfc3339(event.began_s),
        "endsAt": _rfc3339(event.time_s if event.kind == "ended" else event.until_s),
    }


def _rfc3339(time_s: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(time_s, tz=timezone.utc).isoformat()


def forgets(url: str) -> bool:
    """Whether the receiver at an address is to be told again and again of what stands."""
    return url.partition("?")[0].rstrip("/").endswith("/api/v2/alerts")


def payload_for(url: str, event: Event | tuple[Event, ...]) -> Any:
    """An event in the shape that the receiver takes, as its address tells.

    Args:
        event: Several for a receiver that forgets.
    """
    if isinstance(event, tuple) or forgets(url):
        return [as_alert(one) for one in (event if isinstance(event, tuple) else (event,))]
    return as_slack(event) if "hooks.slack.com/" in url else as_json(event)
