"""Rules about the memory of data workers, which python.memory does not have.

Rules of this file: pure functions of `Facts` and of what the kernel tells; each is named by one
`Rule` at the end. A worker that writes to what it has from its parent gets copies, which ends once
all is copied: that is no growth.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .....linux import process
from .....linux.host_memory import WorkerMemory, worker_memory
from .....units import size
from ...facts import Facts
from ...findings import Rule, Sign
from ...not_looked_at import NotLookedAt
from .growth import watched

if TYPE_CHECKING:
    from ....leaks.mistakes import Finding

Workers = Mapping[int, WorkerMemory]

_YOUNG_S = 15.0
"""A worker that is younger still loads libraries and fills its queue."""
_LOOKS, _BETWEEN_S = 4, 0.8
_LEAST_RISE = 128 << 10
"""By so much a worker must grow from look to look, beyond all that it ever had."""
_EPOCHS_OF_EACH = 4
"""Each worker reads other samples in each epoch: after so many epochs for each worker a data set
that keeps them has 98 % of them in all workers, and grows no more."""


def _grow(facts: Facts) -> Iterator[Sign]:
    """Workers have more and more memory."""
    pid, first = facts.pid_here(), facts.first
    before, began_s = first.workers, first.moment_s
    if not any((process.age_s(worker) or 0.0) >= _YOUNG_S for worker in before):
        return
    facts.live_time.need_turn()
    for number in range(_LOOKS):
        passed_s = time.monotonic() - began_s
        time.sleep(_BETWEEN_S if number else max(0.0, _BETWEEN_S - passed_s))
        now = worker_memory(pid)
        if not grown(before, now):
            return
        before = now
    rises = grown(first.workers, before)
    if rises:
        yield _sign(facts, rises, before, time.monotonic() - began_s)


def grown(before: Workers, after: Workers) -> dict[int, int]:
    """By how many bytes those have grown that have more than they ever had, by number.

    None unless they are half of all that were there both times.
    """
    rises = {
        pid: min(
            after[pid].anonymous_bytes - before[pid].anonymous_bytes,
            after[pid].peak_bytes - before[pid].peak_bytes,
        )
        for pid in before.keys() & after.keys()
    }
    found = {pid: rise for pid, rise in rises.items() if rise >= _LEAST_RISE}
    return found if 2 * len(found) >= len(rises) else {}


def _sign(facts: Facts, rises: Mapping[int, int], now: Workers, seconds: float) -> Sign:
    report, note = watched(facts)
    kept = next((one for one in (report.leaks if report else ()) if one.mistake == "workers"), None)
    loader = _loader_of(facts, rises)
    needed = _EPOCHS_OF_EACH * (loader["num_workers"] or 1) if loader is not None else 0
    has_read_all = loader is not None and loader["epochs"] > needed
    number, total = len(rises), sum(rises.values())
    whose = f" of loader {loader['loader']} ({loader['dataset']})" if loader is not None else ""
    return Sign(
        certainty="likely" if has_read_all else "possible",
        summary=f"Memory grows in {number} data worker{'s' if number > 1 else ''}{whose}:"
        f" {size(total / seconds)} a second{'' if number == 1 else ' together'}{_where(kept)}",
        evidence=(
            f"{size(total)} in {seconds:.1f} s, at each of {_LOOKS + 1} looks more than ever"
            f" before; they have {size(sum(now[pid].anonymous_bytes for pid in rises))}",
            *(() if loader is None or has_read_all else (_words_of_epochs(loader),)),
            *((note,) if note and kept is None else ()),
        ),
        weight=0.8,
    )


def _words_of_epochs(loader: Mapping[str, Any]) -> str:
    if not loader["persistent_workers"]:
        return "they end with the epoch, and what they keep with them"
    begun = "epoch has begun" if loader["epochs"] == 1 else "epochs have begun"
    return (
        f"{loader['epochs']} {begun}: a data set that keeps each sample once grows so,"
        " too, until each worker has read all of them"
    )


def _loader_of(facts: Facts, pids: Mapping[int, int]) -> Mapping[str, Any] | None:
    """The row of a worker that grows; None where it cannot be asked."""
    try:
        rows = facts.live("dataloaders")
    except NotLookedAt:
        return None
    return next((row for row in rows if row["pid"] in pids), None)


def _where(kept: Finding | None) -> str:
    """Where samples are made, as a watch tells."""
    row = kept.rows[0] if kept is not None and kept.rows else None
    if row is None or not row["path"]:
        return ""
    line = f" ({row['file'].rpartition('/')[2]}:{row['lineno']})" if row["lineno"] else ""
    return f"; look at what {row['path']}{line} keeps"


RULES = (
    Rule(
        name="worker-memory-grows",
        group="memory",
        subject="memory",
        symptom="The machine runs out of memory, and the trainer's own does not grow.",
        evidence=(
            "RssAnon and VmHWM of data workers, a few looks in the seconds of the command: half"
            f" of those {_YOUNG_S:.0f} s old or more have 128 KiB more than ever before at each."
            f" Likely only after {_EPOCHS_OF_EACH} epochs for each worker: until then a data set"
            " that keeps each sample once grows, too."
        ),
        certainty="likely",
        gravity=47,
        fix="Look at what `__getitem__`, a transform or `collate_fn` adds to an attribute or a"
        " global variable: each worker has its own copy. Bound it, or make the cache once before"
        " the workers are started.",
        source="https://pytorch.org/docs/stable/data.html",
        next="probing ENDPOINT leak --steps 40",
        look=_grow,
        cost_s=8.5,
    ),
)
