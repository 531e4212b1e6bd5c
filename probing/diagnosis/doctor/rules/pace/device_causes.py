"""What has come over the device since steps take longer: other processes, or a lower clock.

Rules of this file: asks the record of devices, and is no rule itself. Without such a record, and of
a device that does not have much to do, nothing is said. While the device is what everything waits
for, it says nothing in which module the host waits.
"""

from __future__ import annotations

from typing import NamedTuple

from .....units import percent
from ...facts import Facts, Row, Steps
from ...not_looked_at import NotLookedAt

_AROUND_NS = 60_000_000_000
"""Who begins to use the device then may have opened it so long before."""
_WORKS = 0.5
_LOWER = 0.95
_EXPLAINS = 0.5
"""A cause that is measured explains this part of the growth at least."""
_ROWS = (
    "SELECT device, start_ns >= {since} AS is_new, min(processes) AS fewest,"
    " median(processes) AS processes, median(sm_mhz) AS sm_mhz, median(busy) AS busy,"
    " avg((coalesce(throttled, '') <> '')::INT) AS held,"
    " mode(throttled) FILTER (throttled <> '') AS reasons FROM python.devices"
    " WHERE start_ns BETWEEN {begin} AND {end} GROUP BY ALL ORDER BY count(*) DESC"
)
_ALONE = (
    "Give the job the device alone, or compare its steps with others of a shared device only: the"
    " work of all processes takes turns there."
)
_COOL = (
    "Look at what holds the clock down, its power limit and cooling: `nvidia-smi -q -d"
    " PERFORMANCE,POWER,TEMPERATURE`."
)
_SHOWS = (
    'probing ENDPOINT query "SELECT step, device, processes, busy, sm_mhz, throttled'
    ' FROM python.devices ORDER BY start_ns DESC LIMIT 60"'
)


class DeviceCause(NamedTuple):
    """What makes all that the device does take longer.

    Attributes:
        words: What it is, to be put behind what has grown.
        evidence: What the device did since.
    """

    words: str
    evidence: str
    fix: str
    next: str = _SHOWS


NO_CAUSE = DeviceCause("", "", "", "")


def device_cause(facts: Facts, before: Steps, after: Steps) -> DeviceCause:
    """What the record of the device has to say of steps that take longer; `NO_CAUSE`: nothing.

    Args:
        before: Steps that did not take so long.
        after: Those since.
    """
    since, last = after.rows[0]["start_ns"], after.rows[-1]
    begin = min(before.rows[0]["start_ns"], since - _AROUND_NS)
    end = last["start_ns"] + round(last["duration"] * 1e9)
    try:
        rows = facts.rows(_ROWS.format(begin=begin, since=since, end=end))
    except NotLookedAt:
        return NO_CAUSE
    new = next((row for row in rows if row["is_new"]), None)
    if new is None or (new["busy"] is not None and new["busy"] < _WORKS):
        return NO_CAUSE
    old = next((r for r in rows if not r["is_new"] and r["device"] == new["device"]), None)
    slower = after.median_s / before.median_s
    return _lower_clock(old, new, slower) or _others(old, new) or NO_CAUSE


def _lower_clock(old: Row | None, new: Row, slower: float) -> DeviceCause | None:
    """That its clock is lower than it was, by enough to explain the steps."""
    if old is None or not old["sm_mhz"] or not new["sm_mhz"]:
        return None
    ratio = old["sm_mhz"] / new["sm_mhz"]
    if new["sm_mhz"] > _LOWER * old["sm_mhz"] or ratio - 1 < _EXPLAINS * (slower - 1):
        return None
    held = ""
    if new["reasons"] and new["held"] >= _EXPLAINS:
        reasons = new["reasons"].replace(";", ", ")
        held = f", held down by {reasons} {percent(new['held'], digits=0)} of the time"
    words = f"{old['sm_mhz']:,.0f} MHz before, {new['sm_mhz']:,.0f} MHz since{held}"
    return DeviceCause(f"the clock of {new['device']} is lower: {words}", _state(new), _COOL)


def _others(old: Row | None, new: Row) -> DeviceCause | None:
    """That other processes compute on it, too."""
    number = round(new["processes"] or 0) - 1
    if number < 1:
        return None
    fewest = None if old is None or old["fewest"] is None else max(0, old["fewest"] - 1)
    who = f"{number} other process{'es' if number > 1 else ''}"
    verb = "use" if number > 1 else "uses"
    if fewest is None or fewest >= number:
        return DeviceCause(f"{who} {verb} {new['device']}, too", _state(new), _ALONE)
    words = f"since then {who} {verb} {new['device']}, before {fewest or 'none'}"
    return DeviceCause(words, _state(new), _ALONE)


def _state(new: Row) -> str:
    """What the device did since, so that a reader sees that it is what is waited for."""
    busy = "" if new["busy"] is None else f"{percent(new['busy'], digits=0)} busy, "
    return f"{new['device']} since: {busy}{new['processes'] or 0:.0f} processes on it"
