"""Rules about memory: what grows, what is near its limit, what takes most of it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from .....units import size
from ....leaks.history import HISTORY, MIB, Row, series_of
from ....leaks.series import Point, Trend, classify
from ....leaks.words import RESIDENT, SERIES, TITLES, series_words
from ....memory.leaking import find_leaks
from ...facts import Facts, percent
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from .filling import LATER, REST, YOUNG, filled, of_filled, still_young
from .standing import Standing, standing_graphs

if TYPE_CHECKING:
    from ....leaks.mistakes import Finding
    from ....leaks.report import LeakReport


_WORTH_A_WATCH = 6 * MIB
_WATCHED, _MOST_WATCHED = 8, 64
_MOST_HELD_S = 6.0
"""How long a watch may hold the training in all, in one look for each step; mostly it is ten times
less. To name who keeps gigabytes is worth that."""
_WATCH_S = 4.0
"""Steps are watched for so long: what is kept now and then takes many."""
_UNWATCHED = "who keeps it takes a watch of some steps to see"
_TOO_LATE = "who keeps it was not looked for: no time was left"
_FAR_MORE = 8.0
_FILLED = (
    "that is far more than memory has grown by: it may be a queue that was filled while it was"
    " watched"
)
_LITTLE = 0.1
_GRAPHS = frozenset({"graph", "loss", "outputs"})
"""Mistakes that keep the nodes of graphs, of which torch does not tell how large they are."""
_LARGE_RISE = 256 * MIB
_RISE_PART = 0.2
_NEAR = 0.9
_NEWEST = (
    "SELECT step, resident_bytes, cgroup_limit_bytes, cgroup_bytes, node_used_bytes,"
    " node_total_bytes, device, device_total_bytes, cgroup_oom_kills,"
    " max(peak_bytes) OVER (PARTITION BY device) AS peak_bytes FROM python.memory"
    " QUALIFY row_number() OVER (PARTITION BY device ORDER BY seq DESC) = 1 ORDER BY seq DESC"
)
"""Of each device, the newest first."""
_LAST_OOM = (
    "SELECT *, coalesce((SELECT max(step) FROM python.steps WHERE optimizer IS NOT NULL"
    " AND duration IS NOT NULL) - step, 0) AS since, (SELECT count(DISTINCT step // 8)"
    " FROM python.ooms) AS times, (SELECT max(step) - min(step) FROM python.ooms) AS span"
    " FROM python.ooms ORDER BY seq DESC LIMIT 1"
)
_FAR_S = 30 * 86400.0
"""What is full only after so long grows too slowly to matter, unless it is seen who keeps it."""
_GOT_OVER, _AGAIN = 8, 3
_LARGE_ACTIVATION = 64 * MIB
_OF_ALL = 0.6


def _grows(facts: Facts) -> Iterator[Sign]:
    yield from _growth(facts, watched, standing_graphs)


def _grows_on_record(facts: Facts) -> Iterator[Sign]:
    """Memory has grown; who keeps it takes a watch to see."""
    yield from _growth(facts, lambda _: (None, _UNWATCHED), lambda *_: None)


def _growth(
    facts: Facts,
    watch: Callable[[Facts], tuple[LeakReport | None, str]],
    look: Callable[[Facts, Trend], Standing | None],
) -> Iterator[Sign]:
    """What of the record grows, and what a watch, or else a look, shows of who keeps it."""
    rows = facts.rows(HISTORY)
    if len(rows) < 2:
        raise NotLookedAt("no step has a row in python.memory")
    trends = [one for one in series_of(rows) if one.trend.grows]
    trend = trends[0].trend if trends else _resident(rows)
    if not trend.grows:
        return
    report, note = watch(facts)
    leaks = report.leaks if report is not None else ()
    name = series_words(trends[0].name, trends[0].device) if trends else SERIES[RESIDENT]
    if trends and report is not None and (queues := _queues(report, trend)):
        yield _of_queues(name, trend, queues)
        return
    standing = look(facts, trend) if not leaks else None
    is_seen = bool(leaks) or standing is not None
    if not (is_seen or trends):
        return
    if not is_seen and name == SERIES[RESIDENT] and (what := filled(facts, rows, trend)):
        yield of_filled(trend, what)
        return
    is_filled = sum(one.bytes_per_step or 0.0 for one in leaks) > _FAR_MORE * trend.slope
    young = "" if is_seen and not is_filled else still_young(facts, rows, trend)
    is_sure = (is_seen and not is_filled) or (not young and _is_large(facts, name, trend))
    doubt, seen = _FILLED if is_filled else young, standing.evidence if standing else note
    grown = f"{name} has grown by {size(trend.rise)} since step {trend.first_step}"
    yield Sign(
        certainty="likely" if is_sure else "possible",
        summary=_growth_words(name, trend, report, standing),
        since_step=trend.first_step,
        evidence=(grown, *_leak_words(leaks, trend), *filter(None, (doubt, seen))),
        weight=1.0 if is_sure else 0.0,
        fix=_fix(leaks, standing) or LATER * bool(young),
    )


def _resident(rows: Sequence[Row]) -> Trend:
    points = [Point(r["step"], float(r["resident_bytes"])) for r in rows if r["resident_bytes"]]
    return classify(points, least_rise=_WORTH_A_WATCH)


def _is_large(facts: Facts, name: str, trend: Trend) -> bool:
    """Whether a growth is one whoever makes it: the resident set keeps some pieces by itself.

    On a device a few numbers that are kept of each step, such as losses, may never fill it, whose
    allocator has never given out nearly all.
    """
    last = trend.last or 0.0
    if name == SERIES[RESIDENT]:
        return trend.rise > max(_LARGE_RISE, _RISE_PART * (last - trend.rise))
    own = [r for r in facts.rows(_NEWEST) if name == series_words("allocated", r["device"])]
    if not own or not own[0]["device_total_bytes"]:
        return True
    room = own[0]["device_total_bytes"] - max(own[0]["peak_bytes"] or 0, last)
    return not room * facts.steps.median_s > _FAR_S * trend.slope


def _queues(report: LeakReport, trend: Trend) -> tuple[Finding, ...]:
    """The collections with a limit that are filling, where they make half of a growth.

    None where something else is kept, but for what is little beside them: parts of a batch that was
    taken out of its queue while it was looked for who has it.
    """
    found = tuple(one for one in report.findings if one.mistake == "bounded")
    sizes = sum(one.bytes_per_step or 0.0 for one in found)
    others = [one.bytes_per_step for one in report.leaks]
    is_all = None not in others and sum(filter(None, others)) < _LITTLE * sizes
    return found if sizes >= REST * trend.slope and (is_all or not others) else ()


def _of_queues(name: str, trend: Trend, queues: Sequence[Finding]) -> Sign:
    """A growth that ends by itself, as that of a replay memory."""
    limits = [row["bound"] for one in queues for row in one.rows if row["bound"] is not None]
    return Sign(
        certainty="possible",
        summary=f"Memory grows: {size(trend.slope)} a step in {name};"
        f" {TITLES[queues[0].mistake]}{_where(queues[0])}",
        since_step=trend.first_step,
        evidence=(
            f"{name} has grown by {size(trend.rise)} since step {trend.first_step}",
            *_leak_words(queues, trend),
            *(f"its limit is {limit:,} items" for limit in limits[:1]),
        ),
        fix="Nothing, if there is memory enough for it once it is full; else lower its limit.",
    )


def _fix(leaks: Sequence[Finding], standing: Standing | None) -> str:
    """What to do about what is kept; empty where nobody was seen who keeps it."""
    text = leaks[0].instead + "." if leaks else standing.fix if standing else ""
    return text[:1].upper() + text[1:]


def _growth_words(
    name: str, trend: Trend, report: LeakReport | None, standing: Standing | None
) -> str:
    leaks = report.leaks if report is not None else ()
    what = f"Memory grows: {size(trend.slope)} a step in {name}"
    if standing is not None:
        return f"{what}; {standing.summary}"
    if report is None:
        return what
    if not leaks:
        seen = f"no tensor that is kept was seen in the {report.steps} steps that were watched"
        return f"{what}; {seen}"
    return f"{what}; {TITLES[leaks[0].mistake]}{_where(leaks[0])}"


def _where(finding: Finding) -> str:
    row = next((row for row in finding.rows if row["path"]), None)
    if row is None:
        return ""
    line = f" ({row['file'].rpartition('/')[2]}:{row['lineno']})" if row["lineno"] else ""
    return f" in {row['path']}{line}"


def _leak_words(findings: Sequence[Finding], trend: Trend) -> tuple[str, ...]:
    return tuple(f"{TITLES[one.mistake]}: {_amount(one, trend)}" for one in findings[:3])


def _amount(finding: Finding, trend: Trend) -> str:
    """By how much something grows; of graphs that is what their tensors do."""
    by = finding.bytes_per_step
    if not by:
        return "seen in several steps"
    if finding.mistake not in _GRAPHS or by >= _LITTLE * trend.slope:
        return f"{size(by)} a step"
    return (
        f"their tensors are {size(by)} a step; the graphs themselves, which are no tensors, take"
        " memory, too, that is not counted"
    )


def watched(facts: Facts) -> tuple[LeakReport | None, str]:
    """What a watch of the next steps shows; else why there was none."""
    try:
        step_s = facts.now().median_s
        if facts.seconds_left < _WATCH_S:
            return None, _TOO_LATE
        if step_s * _WATCHED > _WATCH_S:
            return None, f"who keeps it was not looked for: a step takes {step_s:.1f} s"
        report = facts.ask("leak watch", lambda: _watch(facts, max(5.0, 5 * step_s)))
        if report.failure is not None:
            return None, f"who keeps it was not seen: {report.failure}"
        return report, ""
    except NotLookedAt as error:
        return None, f"who keeps it was not looked for: {error}"


def _watch(facts: Facts, limit_s: float) -> LeakReport:
    """What some steps show; of a fast training more of them, if the first show nothing."""
    began = time.monotonic()
    watch = functools.partial(
        find_leaks, facts.process, timeout_s=limit_s, most_held_s=_MOST_HELD_S
    )
    report = watch(_WATCHED)
    each_s = (time.monotonic() - began) / _WATCHED
    more = min(_MOST_WATCHED, int(min(_WATCH_S, facts.seconds_left / 2) / each_s))
    if report.leaks or more < 2 * _WATCHED:
        return report
    return watch(more)


def _near_limit(facts: Facts) -> Iterator[Sign]:
    rows = facts.rows(_NEWEST)
    if not rows:
        raise NotLookedAt("no row in python.memory")
    row = rows[0]
    live = next(iter(facts.live("host_memory")), None) if facts.is_alive else None
    working = (live and live["cgroup_working_bytes"]) or None
    for what, used, limit in (
        ("its memory cgroup", working, row["cgroup_limit_bytes"]),
        ("the machine", row["node_used_bytes"], row["node_total_bytes"]),
    ):
        if used and limit and used >= _NEAR * limit:
            yield Sign(
                certainty="likely" if what == "its memory cgroup" else "possible",
                summary=f"Memory is near its limit: {what} uses {size(used)} of {size(limit)}",
                evidence=(f"{size(row['resident_bytes'])} of it are this process's",),
                weight=used / limit,
            )
            return


def _one_activation(facts: Facts) -> Iterator[Sign]:
    """One module makes most of what is kept for the backward pass."""
    now = facts.now(least=3)
    limit_s = min(6.0, max(1.0, 3 * now.median_s))
    rows = facts.ask(
        "activations", lambda: facts.process.live("activations", wait_s=limit_s).dicts()
    )
    total = sum(row["bytes"] for row in rows)
    if not rows or total < _LARGE_ACTIVATION:
        return
    top, second = sorted([*rows, {"bytes": 0}], key=lambda row: -row["bytes"])[:2]
    if not top["module"] or top["bytes"] < max(_OF_ALL * total, 2 * second["bytes"]):
        return
    if not second["bytes"]:  # a compiled model: what its modules keep is not told apart
        return
    yield Sign(
        certainty="possible",
        summary=f"One module, {top['module']}, keeps"
        f" {percent(top['bytes'] / total)} of all activations: {size(top['bytes'])}",
        evidence=(f"all modules together keep {size(total)} as the backward pass begins",),
        weight=top["bytes"] / total,
    )


def _out_of_memory(facts: Facts) -> Iterator[Sign]:
    """An allocation has failed."""
    rows = facts.rows(_LAST_OOM)
    if not rows:
        return
    row = rows[0]
    where = f" in {row['module']}" if row["module"] else ""
    asked = f" of {size(row['requested_bytes'])}" if row["requested_bytes"] is not None else ""
    is_past = row["since"] > _GOT_OVER * row["span"]
    is_over = row["since"] >= _GOT_OVER and (row["times"] < _AGAIN or is_past)
    yield Sign(
        certainty="possible" if is_over else "certain",
        summary=f"An allocation{asked} on {row['device']} failed in step"
        f" {row['step']}, {row['phase']}{where}: {row['error']}"
        + (f"; {row['since']} steps have been made since" if is_over else ""),
        since_step=row["step"],
        evidence=(f"{size(row['free_bytes'])} of {size(row['total_bytes'])} were free",),
        weight=1.0,
    )


RULES = (
    Rule(
        name="out-of-memory",
        group="memory",
        subject="memory",
        symptom="torch.OutOfMemoryError, or DefaultCPUAllocator: can't allocate memory.",
        evidence=(
            f"A row of python.ooms. Only possible where {_GOT_OVER} or more steps of an"
            " optimizer have ended since, as after a search for the batch size, and it does not"
            " come back."
        ),
        certainty="certain",
        gravity=90,
        fix="`probing PID oom` names what was there, and `probing PID fit` what would fit.",
        source="https://pytorch.org/docs/stable/notes/cuda.html",
        next="probing ENDPOINT oom",
        asks=(_LAST_OOM,),
        look=_out_of_memory,
    ),
    Rule(
        name="memory-grows",
        group="memory",
        subject="memory",
        symptom="The memory in use grows until the kernel or torch ends the training.",
        evidence=(
            "Floors of four spans of python.memory (Mann and Kendall): device memory, or the"
            " resident set by 48 MiB, or by less where a watch of 8 to 64 steps sees what is kept,"
            " or graphs of earlier steps are half of it. Without that only possible below 256 MiB"
            " or a fifth; and where only pages of mapped files come (`mapped_bytes`), or what was"
            " allocated before (`virtual_bytes`), where a collection with a limit makes half of"
            f" it, and where nobody is seen who keeps it, in fewer than {YOUNG} steps."
        ),
        certainty="likely",
        gravity=48,
        fix="Watch more steps: what is kept now and then takes more of them.",
        source="https://pytorch.org/docs/stable/notes/faq.html",
        next="probing ENDPOINT leak --steps 20",
        asks=(HISTORY,),
        look=_grows,
        on_record=_grows_on_record,
        cost_s=8.0,
    ),
    Rule(
        name="memory-near-limit",
        group="memory",
        subject="memory",
        symptom="The next large batch ends the training.",
        evidence="Working memory of the cgroup, or of the machine, at nine tenths of its limit.",
        certainty="likely",
        gravity=75,
        fix="See who takes it, and give it more or take less.",
        next='probing ENDPOINT query "SELECT * FROM python.host_memory"',
        asks=(_NEWEST,),
        look=_near_limit,
    ),
    Rule(
        name="one-activation",
        group="memory",
        subject="memory",
        symptom="One layer decides what batch fits.",
        evidence="python.activations: three fifths of all, 64 MiB or more, and twice what any other"
        " module keeps.",
        certainty="possible",
        gravity=43,
        fix="Compute it without the large intermediate (scaled_dot_product_attention), or with"
        " torch.utils.checkpoint.",
        source="https://pytorch.org/docs/stable/checkpoint.html",
        next="probing ENDPOINT memory",
        look=_one_activation,
        cost_s=4.0,
    ),
)
