"""What else stands out in the ranks of a job, whether or not it hangs.

Rules of this file: pure functions; a hint never names a cause of a hang.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from ...stacks.waits import BY_DEBUGGER
from ...units import duration
from .case import Case
from .evidence import RankEvidence, Verdict
from .words.texts import SPINS, ranks_text

_LEAST = 5
"""Collectives without which no rank is called the one that comes last."""
_SHARE = 0.8
_NOBODY_NAMED = frozenset({"unknown", "same_collective"})
_NOT_OF_THE_DEAD = frozenset({"healthy", "slow", "unknown"})
"""Verdicts whose sentence tells nothing of ranks that have ended."""
_MOST_DEVICES = 4
_LEAST_LAG_S = 0.02
_LAG_STEPS = 0.1


def hints(case: Case, verdict: Verdict, asked: str) -> tuple[str, ...]:
    """Sentences about what the person should look at next.

    Args:
        asked: How the command named the ranks.
    """
    found = [*_not_finite(case), *_more_attention(case, verdict), *_without_agent(case)]
    found += _device_errors(case)
    if verdict.kind in _NOBODY_NAMED:
        found += _devices(case)
    if verdict.kind == "healthy":
        found += _comes_last(case, asked)
    return tuple(found)


def hints_of_one(evidence: RankEvidence | None) -> tuple[str, ...]:
    """The same of one process that belongs to no others."""
    if evidence is None or not evidence.is_alive or evidence.not_finite is None:
        return ()
    target = evidence.address or evidence.pid
    return (
        f"Its loss is not finite, last in step {evidence.not_finite}: `probing -t {target} arm nan`"
        " names the module.",
    )


def _not_finite(case: Case) -> Iterator[str]:
    steps = {rank: e.not_finite for rank, e in case.ranks.items() if e.not_finite is not None}
    if steps:
        ranks = sorted(steps)
        target = case.ranks[ranks[0]].address or f"rank:{ranks[0]}"
        yield (
            f"The loss of {ranks_text(ranks)} is not finite, last in step {max(steps.values())}:"
            f" `probing -t {target} arm nan` names the module."
        )


def _devices(case: Case) -> Iterator[str]:
    """What the devices of ranks do that have nothing else to be said of them."""
    known = [rank for rank in case.stuck if case.ranks[rank].device is not None]
    for rank in known[:_MOST_DEVICES]:
        yield f"Rank {rank}: {case.ranks[rank].device}{SPINS}."
    if len(known) > _MOST_DEVICES:
        yield f"The devices of {len(known) - _MOST_DEVICES} more ranks are in python.devices."


def _device_errors(case: Case) -> Iterator[str]:
    """Errors of devices that their drivers have told of, whoever is named."""
    for rank, evidence in sorted(case.ranks.items()):
        yield from (f"Of the device of rank {rank}, {text}." for text in evidence.device_errors)


def _without_agent(case: Case) -> Iterator[str]:
    """Ranks that nothing is recorded of."""
    ranks = [rank for rank, evidence in case.ranks.items() if not evidence.has_agent]
    if ranks and any(case.ranks[rank].is_alive for rank in ranks):
        verb = "has" if len(ranks) == 1 else "have"
        yield f"{ranks_text(ranks).capitalize()} {verb} no agent, and so no record: seen by stacks."


def _more_attention(case: Case, verdict: Verdict) -> Iterator[str]:
    """Ranks that are not well, though the job moves; and exceptions of living ones."""
    named = {cause.rank for cause in verdict.causes}
    for rank, evidence in sorted(case.ranks.items()):
        if rank in named:
            continue
        if evidence.state == "dead" and verdict.kind in _NOT_OF_THE_DEAD:
            yield f"Rank {rank} has ended: {evidence.ending or 'how is not on record'}."
        elif evidence.has_agent and evidence.state in {"silent", "stopped", "unreachable"}:
            text = BY_DEBUGGER if evidence.is_debugged else _STATES[evidence.state]
            yield f"Rank {rank} is {text}."
        for text in evidence.deadlocks:
            yield f"In rank {rank} there is {text}."


_STATES = {
    "silent": "alive, but its agent does not answer; it was looked at from outside",
    "stopped": "stopped by a signal",
    "unreachable": "not to be reached, so nothing is known of it now",
}


def _comes_last(case: Case, asked: str) -> Iterator[str]:
    """A rank that nearly always comes last to the collectives of a group."""
    if len({e.host for e in case.ranks.values()}) > 1:
        return  # the clocks of machines differ: `stragglers` corrects for that
    for name, arrivals in sorted(_arrivals(case).items()):
        last: Counter[int] = Counter()
        lags: dict[int, list[float]] = {}
        for starts in arrivals:
            rank = max(starts, key=lambda r: starts[r])
            others = [start for other, start in starts.items() if other != rank]
            last[rank] += 1
            lags.setdefault(rank, []).append((starts[rank] - statistics.median(others)) * 1e-9)
        total = sum(last.values())
        if total < _LEAST:
            continue
        rank, times = last.most_common(1)[0]
        lag = statistics.median(lags[rank])
        least = max(_LEAST_LAG_S, _LAG_STEPS * (case.median_step_s or 0.0))
        if times >= _SHARE * total and lag >= least:
            yield (
                f"Rank {rank} came last to {times} of the last {total} collectives of group {name},"
                f" {duration(lag)} after the others: `probing {asked} stragglers` says where."
            )
            return


def _arrivals(case: Case) -> dict[str, list[dict[int, int]]]:
    """By group, when the ranks came to each collective that all of them came to."""
    found: dict[str, dict[int, dict[int, int]]] = {}
    members: dict[str, set[int]] = {}
    for rank, evidence in case.ranks.items():
        for call in evidence.calls:
            if call.is_collective and call.start_ns is not None:
                found.setdefault(call.group, {}).setdefault(call.seq, {})[rank] = call.start_ns
                members.setdefault(call.group, set()).add(rank)
    return {
        name: [starts for _, starts in sorted(of.items()) if len(starts) == len(members[name]) >= 2]
        for name, of in found.items()
    }
