"""Who holds up a job: the verdict in words, then how each rank does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ....cluster.ranks.naming import rank_words
from ....cluster.ranks.slow.pace import LEAST_SHARE, LEAST_STEPS, Z_LIMIT, RankPace
from ....cluster.ranks.slow.reasons import reasons
from ....units import duration, percent
from ..table import columns, render_table
from ..text import escape_controls, plural

if TYPE_CHECKING:
    from ....cluster.ranks.slow.stragglers import StragglerReport

_ROWS_SHOWN = 16
_PHASES_NAMED = 0.1
"""What part of a rank's excess a phase must be to be named."""
_HEADINGS = (
    ">rank", "host", ">own", ">excess", ">z", ">slow steps", ">last to arrive", ">waits", "most in"
)  # fmt: skip
_CLOCK = ">device clock"


def render_stragglers(report: StragglerReport, *, width: int | None, color: bool) -> str:
    """The verdict first."""
    blocks = ["\n".join(_verdict(report)), "\n".join(_facts(report))]
    if report.ranks:
        rows = sorted(report.ranks, key=lambda pace: (not pace.is_straggler, -pace.excess_s))
        blocks.insert(1, _table(rows, width, color=color))
    return "\n\n".join(block for block in blocks if block)


def _verdict(report: StragglerReport) -> Iterator[str]:
    """Who is to blame, and why."""
    if report.alone and not report.ranks:
        yield "nothing can be said: there is no other rank to compare with"
        return
    if report.steps < LEAST_STEPS:
        has = "no step" if not report.steps else f"only {plural(report.steps, 'step')}"
        yield f"nothing can be said: the ranks share {has}, and {LEAST_STEPS} are needed"
        return
    found = report.stragglers
    for host in report.slow_hosts:
        whose = [pace.rank for pace in found if pace.host == host]
        yield f"host {escape_controls(host)} is slow: all of its ranks are ({rank_words(whose)})"
    for device in report.slow_devices:
        yield f"device {device} is slow on every host"
    for pace in found:
        yield from _blame(pace)
    if not found:
        yield from _nobody(report)
    for pace in report.ranks:
        if pace.is_slow_at_times:
            yield (
                f"{rank_words([pace.rank])} is slow at times: {duration(pace.excess_s)} more than"
                f" others in {_of(pace.slow_steps, pace.steps)} steps"
            )


def _nobody(report: StragglerReport) -> Iterator[str]:
    """That there is none; or that of the slowest it is not certain."""
    step_s = report.step_s or 0.0
    doubtful = [
        pace
        for pace in report.ranks
        if pace.excess_s > LEAST_SHARE * step_s and not pace.is_slow_at_times
    ]
    if doubtful:
        worst = max(doubtful, key=lambda pace: pace.excess_s)
        yield (
            f"no straggler is certain: {rank_words([worst.rank])} needs {duration(worst.excess_s)}"
            f" more of its own per step than others, slow in {_of(worst.slow_steps, worst.steps)}"
            f" steps, but times vary too much to tell (z = {worst.z:.1f}, {Z_LIMIT} is needed)."
            " Try a larger --steps"
        )
        return
    own: dict[int, list[float]] = {}
    for pace in report.ranks:
        own.setdefault(pace.cohort, []).append(pace.own_s)
    apart = max(max(times) - min(times) for times in own.values())
    share = f" ({percent(apart / step_s)} of a step)" if step_s else ""
    yield f"no straggler: the ranks' own times per step are at most {duration(apart)} apart{share}"


def _blame(pace: RankPace) -> Iterator[str]:
    usual = pace.own_s - pace.excess_s
    yield (
        f"{rank_words([pace.rank])} is a straggler: {duration(pace.own_s)} of its own per step"
        f" where others need {duration(usual)} (+{duration(pace.excess_s)}, z = {pace.z:.0f}), in"
        f" {_of(pace.slow_steps, pace.steps)} steps"
    )
    phases = sorted(pace.phases.items(), key=lambda item: -item[1])
    named = [
        f"{_words(phase)} +{duration(above)}"
        for phase, above in phases
        if above > _PHASES_NAMED * pace.excess_s
    ]
    if named:
        yield f"  the extra time is in {', '.join(named)}"
    for reason in reasons(pace):
        yield f"  {reason}"
    if pace.last_in and pace.late_s is not None:
        yield (
            f"  it was the last to arrive in {_of(pace.last_in, pace.collectives)} collectives,"
            f" {duration(pace.late_s)} behind the others"
        )


def _table(paces: Sequence[RankPace], width: int | None, *, color: bool) -> str:
    """How each rank does, the slowest first."""
    has_clocks = any(pace.sm_mhz is not None for pace in paces)
    headings = columns(*_HEADINGS, *([_CLOCK] if has_clocks else ()))
    rows = [
        [
            str(pace.rank),
            pace.host,
            duration(pace.own_s),
            f"{'-' if pace.excess_s < 0 else '+'}{duration(abs(pace.excess_s))}",
            f"{pace.z:.1f}",
            _of(pace.slow_steps, pace.steps),
            _of(pace.last_in, pace.collectives) if pace.collectives else None,
            duration(pace.blocked_s),
            _most(pace),
            *([_clock(pace)] if has_clocks else []),
        ]
        for pace in paces[:_ROWS_SHOWN]
    ]
    more = max(0, len(paces) - _ROWS_SHOWN)
    return render_table(
        headings, rows, width=width, color=color, more_rows=more, all_by="--format json"
    )


def _facts(report: StragglerReport) -> Iterator[str]:
    """What was compared, and how sure it is."""
    if report.first_step is not None and report.step_s is not None:
        yield (
            f"steps {report.first_step} to {report.last_step}, {duration(report.step_s)} each in"
            f" the middle; own times spread by {duration(report.spread_s or 0.0)}"
        )
    for number, cohort in enumerate(report.cohorts):
        if len(report.cohorts) > 1:
            yield f"cohort {number}: {rank_words(cohort)}"
    if report.alone and report.ranks:
        yield f"not compared, as no other rank does the same work: {rank_words(report.alone)}"
    if report.on_device:
        yield "by the clocks of their devices, without what these waited for other ranks"
    elif report.on_device is False:
        yield (
            "the ranks wait for each other on their devices, of which fewer than"
            f" {LEAST_STEPS} steps are on record that all have timed: times include that waiting"
        )
    if report.ranks and not report.has_collectives:
        yield "no collectives are recorded, so times include waiting for other ranks"
    yield from _clocks(report)


def _clocks(report: StragglerReport) -> Iterator[str]:
    clocks = report.clocks
    if clocks.error_s is not None:
        told = plural(clocks.meetings, "collective")
        yield f"moments compared to within {duration(clocks.error_s)}, by the ends of {told}"
        if len(clocks.offsets_s) > 1:
            ahead = (f"{h} {o:+.6f} s" for h, o in sorted(clocks.offsets_s.items()))
            yield f"clocks aligned: {escape_controls(', '.join(ahead))}"
    for host in clocks.strange_hosts:
        yield f"the clock of {escape_controls(host)} is not known: it shares no collective"


def _most(pace: RankPace) -> str | None:
    if not pace.phases:
        return None
    phase = max(pace.phases, key=lambda name: pace.phases[name])
    above = pace.phases[phase]
    return f"{_words(phase)} +{duration(above)}" if above > 0 else None


def _clock(pace: RankPace) -> str | None:
    """What the device's multiprocessors run at."""
    return None if pace.sm_mhz is None else f"{pace.sm_mhz:,.0f} MHz"


def _words(phase: str) -> str:
    return phase.replace("_", " ")


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}"
