"""What one SQL over many ranks costs whoever asks: processor time, bytes, connections, memory.

Real ranks of this machine first, 8 to 64, with a line fitted to the first three and checked on the
last; then simulated ones, served by one process that does not sleep; then simulated machines that
are some milliseconds away.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from probing.cluster.job.members import Member, find_members
from probing.cluster.job.outcomes import ask_all
from probing.cluster.union.query import Union, UnionAnswer
from tests.harness.ranks import running_ranks
from tests.harness.targets import ROOT, program_path

from .measures import Measure, rounds_for
from .memory import resident_kib
from .processes import plain_env, read_line

MERGED = (
    "SELECT module, count(*), sum(duration_ns), avg(duration) FROM python.torch_trace GROUP BY 1"
)
MOVED = (
    "SELECT step, rank, duration / median(duration) OVER (PARTITION BY step) FROM python.steps"
    " QUALIFY row_number() OVER (PARTITION BY step ORDER BY duration DESC) = 1"
)
_REAL = (8, 16, 32, 64)
_SIMULATED = (1_000, 10_000)
_MACHINES = (64, 1_250)
_TRIPS_S = (0.002, 0.02)
_WORK_S = 0.5
"""How long a machine works on a statement: it starts a process for it."""
_RANKS_EACH = 8
_TIMEOUT_S = 500.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """What one answer cost the process that asked."""

    cpu_s: float
    answer: UnionAnswer


def measure(effort: float) -> Iterator[Measure]:
    """Real ranks, then simulated ones."""
    yield from _real(rounds_for(3, effort))
    for count in _SIMULATED:
        yield from _simulated(count)
    yield from _machines()


def _real(rounds: int) -> Iterator[Measure]:
    """Ranks of this machine, whose rings this process reads."""
    most = max(_REAL)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_ranks(Path(folder), most, rows=400) as ranks,
    ):
        members = ranks.members()
        for name, sql in (("merged", MERGED), ("moved", MOVED)):
            found: dict[int, float] = {}
            _ask(members, sql)  # what is imported once is not counted
            for count in _REAL:
                costs = [_ask(members[:count], sql) for _ in range(rounds)]
                found[count] = min(cost.cpu_s for cost in costs)
                moved = costs[-1].answer.moved_bytes
                yield Measure(
                    what=f"{name}: processor time of the one who asks, {count} ranks here",
                    unit="s",
                    values=tuple(cost.cpu_s for cost in costs),
                    note=f"{costs[-1].answer.moved_rows:,} rows, {moved:,} bytes where they meet",
                )
            yield _fit(name, found)


def _fit(name: str, found: dict[int, float]) -> Measure:
    """A line through all counts but the last, and how far from it the last is."""
    *first, last = found
    mean_x = sum(first) / len(first)
    mean_y = sum(found[x] for x in first) / len(first)
    slope = sum((x - mean_x) * (found[x] - mean_y) for x in first) / sum(
        (x - mean_x) ** 2 for x in first
    )
    predicted = mean_y + slope * (last - mean_x)
    return Measure(
        what=f"{name}: error of the line through {first} at {last} ranks",
        unit="%",
        values=(100 * (predicted / found[last] - 1),),
        note=f"{1000 * (mean_y - slope * mean_x):.1f} ms and {1000 * slope:.2f} ms for each rank",
    )


def _simulated(count: int) -> Iterator[Measure]:
    """Ranks that one process stands for; each is asked by a request of its own."""
    argv = [sys.executable, str(program_path("fake_ranks")), str(count)]
    env = {**plain_env(), "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
    try:
        port = read_line(server).split()[1]
        found = find_members([f"127.0.0.1:{port}"], timeout_s=60.0).members
        members = [dataclasses.replace(member, via=None) for member in found]
        _ask(members[:1], MERGED)
        for name, sql in (("merged", MERGED), ("moved", MOVED)):
            before, resident = _told(port), resident_kib(os.getpid())["all"]
            cost = _ask(members, sql)
            after = _told(port)
            answered = sum(o.state == "answered" for o in cost.answer.outcomes)
            assert answered == count, f"{answered} of {count} answered"
            yield Measure(
                what=f"{name}: processor time of the one who asks, {count:,} simulated ranks",
                unit="s",
                values=(cost.cpu_s,),
                note=f"{after['connections'] - before['connections']:,} connections,"
                f" {after['sent'] - before['sent']:,} bytes sent to it,"
                f" {cost.answer.moved_rows:,} rows where they meet,"
                f" {(resident_kib(os.getpid())['all'] - resident) / 1024:.0f} MiB more resident",
            )
    finally:
        server.kill()
        server.wait()


def _machines() -> Iterator[Measure]:
    """Node servers far away, by latency: finding their ranks, one statement, the stacks of all."""
    for trip_s in _TRIPS_S:
        argv = [sys.executable, str(program_path("far_nodes")), str(trip_s), str(_WORK_S)]
        env = {**plain_env(), "PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)
        try:
            port = read_line(server).split()[1]
            _ask(_behind(port, 2), MERGED)
            for count in _MACHINES:
                yield from _of_machines(port, count, f"{1000 * trip_s:.0f} ms away")
        finally:
            server.kill()
            server.wait()


def _of_machines(port: str, count: int, where: str) -> Iterator[Measure]:
    """What each question takes over so many machines."""
    members = _behind(port, count)
    words = [member.via or "" for member in members[::_RANKS_EACH]]

    def stacks() -> int:
        outcomes = ask_all(members, lambda p, _: p.backtrace(), timeout_s=_TIMEOUT_S)
        return sum(outcome.state == "answered" for outcome in outcomes)

    def merged() -> int:
        outcomes = _ask(members, MERGED).answer.outcomes
        return sum(outcome.state == "answered" for outcome in outcomes)

    questions: dict[str, Callable[[], int]] = {
        "list": lambda: len(find_members(words, timeout_s=_TIMEOUT_S).members),
        "one statement, merged": merged,
        "backtrace": stacks,
    }
    for name, question in questions.items():
        before, resident = _told(port), resident_kib(os.getpid())["all"]
        cpu_s, began = time.process_time(), time.monotonic()
        answered = question()
        took_s, cpu_s = time.monotonic() - began, time.process_time() - cpu_s
        after = _told(port)
        assert answered == len(members), f"{answered} of {len(members)} answered"
        yield Measure(
            what=f"{name}: {len(members):,} ranks of {count:,} machines, {where}",
            unit="s",
            values=(took_s,),
            note=f"{cpu_s:.1f} s of processor time,"
            f" {after['connections'] - before['connections'] - 1:,} connections,"
            f" {(after['sent'] - before['sent']) / 1e6:.1f} MB,"
            f" {(resident_kib(os.getpid())['all'] - resident) / 1024:.0f} MiB more",
        )


def _behind(port: str, count: int) -> list[Member]:
    """The ranks of so many machines."""
    found = []
    for rank in range(count * _RANKS_EACH):
        number = rank // _RANKS_EACH
        via = f"127.0.{number // 250}.{number % 250 + 1}:{port}"
        endpoint = f"http://{via}/v1/ranks/{1000 + rank}-1"
        member = Member(
            rank=rank,
            host=f"host{number}",
            pid=1000 + rank,
            world_size=None,
            endpoint=endpoint,
            via=via,
        )
        found.append(member)
    return found


def _told(port: str) -> dict[str, int]:
    """What the server has counted."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/costs") as response:
        costs: dict[str, int] = json.load(response)
    return costs


def _ask(members: tuple[Member, ...] | list[Member], sql: str) -> _Cost:
    """One statement, to its last row."""
    started = time.process_time()
    answer = Union(members).query(sql, timeout_s=_TIMEOUT_S)
    answer.to_arrow()
    return _Cost(cpu_s=time.process_time() - started, answer=answer)
