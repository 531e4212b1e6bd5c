"""Which run a rank belongs to, where ranks of one job are exported by many machines into a store.

    _probing/jobs/JOB/RUN.ATTEMPT.STARTED_NS/RANK.PROCESS

Each rank has an object of its own, whose name says all, so that a list is all that is read. To join
a run is to put that object and to find no other of the same rank beside it; only who begins a run
has to be alone. Rules of this file: what belongs together is said by `history.naming`.
"""

from __future__ import annotations

import random
import time

from ...errors import HistoryBusy
from ...messages.card import Card
from ..layout import OWN, as_stored, quoted, unquoted
from ..naming import JobRun, begun, fitting, run_alone
from .holding import held
from .objects import Store

_WAIT_S = 120.0


def run_in(store: Store, project: str, card: Card, process: str) -> str:
    """The run that a process belongs to; the same whenever it is asked.

    Raises:
        HistoryBusy: Others of its job begin runs all the time.
        StoreUnreachable: The store cannot be asked.
    """
    if card.job is None or card.rank is None:
        return run_alone(card)
    folder = f"{OWN}/jobs/{quoted(f'{project} {card.job}')}"
    until_s = time.monotonic() + _WAIT_S
    while True:
        run = _joined(store, folder, card, process) or _begun(store, folder, card, process)
        if run is not None:
            return run
        if time.monotonic() > until_s:
            raise HistoryBusy(f"the runs of the job {card.job} are being begun")
        time.sleep(random.uniform(0, 2.0))  # noqa: S311 - no secret


def _joined(store: Store, folder: str, card: Card, process: str) -> str | None:
    """The run that a process has joined, now or before; None where none fits."""
    for _ in range(3):
        runs = _runs(store, folder)
        known = next((run for run in runs if process in run["ranks"].values()), None)
        run = known or fitting(runs, card)
        if run is None:
            return None
        if known is not None:
            return known["run"]
        mine = f"{folder}/{_folder_of(run)}/{card.rank}.{process}"
        store.put(mine, b"1")
        those = store.objects(f"{folder}/{_folder_of(run)}")
        if [one.name for one in those if _rank_of(one.name) == card.rank] == [mine]:
            return run["run"]
        store.remove([mine])
        time.sleep(random.uniform(0, 1.0))  # noqa: S311 - no secret
    return None


def _begun(store: Store, folder: str, card: Card, process: str) -> str | None:
    """The run that a process begins; None where another one of its job is about to."""
    try:
        with held(store, f"{folder}/_lock", wait_s=0.0, busy="") as alone:
            runs = _runs(store, folder)
            if fitting(runs, card) is not None:
                return None
            run = begun(runs, card, stored=as_stored)
            alone.go_on()
            store.put(f"{folder}/{_folder_of(run)}/{card.rank}.{process}", b"1")
            return run["run"]
    except HistoryBusy:
        return None


def _runs(store: Store, folder: str) -> list[JobRun]:
    """The runs of a job, those that began first in front."""
    found: dict[str, JobRun] = {}
    for one in store.objects(folder):
        name, _, own = one.name.removeprefix(f"{folder}/").partition("/")
        parts = name.rsplit(".", 2)
        rank, _, process = own.partition(".")
        if len(parts) != 3 or not process:
            continue
        run: JobRun = {
            "run": unquoted(parts[0]) or "",
            "attempt": int(parts[1]),
            "started_ns": int(parts[2]),
            "ranks": {},
        }
        found.setdefault(name, run)["ranks"][rank] = process
    return sorted(found.values(), key=lambda run: run["started_ns"])


def _folder_of(run: JobRun) -> str:
    return f"{quoted(run['run'])}.{run['attempt']}.{run['started_ns']}"


def _rank_of(name: str) -> int:
    return int(name.rpartition("/")[2].partition(".")[0])
