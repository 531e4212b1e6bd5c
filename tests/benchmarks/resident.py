"""What the agent adds to the resident set of the process that it watches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from probing.messages import common as wire
from probing.reach.address import Address
from probing.reach.endpoint import Local, resolve
from probing.reach.transport import ask
from probing.rundir.folders import RunDirectory

from .measures import Measure, differences, measure_in_turn, rounds_for, scaled
from .memory import resident_kib
from .processes import read_line, start_program, temporary_home

_TIMEOUT_S = 60.0


def measure(effort: float) -> Iterator[Measure]:
    """The same million module calls with and without an agent, several times."""
    asked: list[dict[str, int]] = []
    found: dict[bool, list[dict[str, int]]] = {True: [], False: []}

    def run(*, agent: bool) -> float:
        with temporary_home() as home:
            before, after = _run(home, agent=agent)
        found[agent].append(before)
        if after is not None:
            asked.append(after)
        return before["all"]

    measure_in_turn(rounds_for(5, effort), lambda: run(agent=True), lambda: run(agent=False))
    for state, with_agent, must in (("before any request", found[True], 5), ("asked", asked, 30)):
        for kind in ("all", "anon", "file", "shmem"):
            values = [[one[kind] for one in ones] for ones in (with_agent, found[False])]
            yield Measure(
                what=f"agent's resident set, {state}" + ("" if kind == "all" else f", {kind}"),
                unit="MB",
                values=scaled(differences(*values), 1024e-6),
                must=must if kind == "all" else None,
            )
    yield Measure(
        what="resident set without the agent",
        unit="MB",
        values=scaled([one["all"] for one in found[False]], 1024e-6),
    )


def _run(home: Path, *, agent: bool) -> tuple[dict[str, int], dict[str, int] | None]:
    """One process: its resident set after its module calls, and after the first requests."""
    with start_program("footprint", home, agent=agent) as process:
        try:
            if read_line(process) != "ready":
                raise RuntimeError("the program did not get ready")
            before = resident_kib(process.pid)
            if not agent:
                return before, None
            place = resolve(process.pid, RunDirectory(home))
            assert isinstance(place, Local), f"it has no run folder: {place}"
            address = Address(path=place.folder.socket)
            ask(address, "status", timeout_s=_TIMEOUT_S)
            ask(address, "eval", body=wire.EvalRequest(code="1 + 1"), timeout_s=_TIMEOUT_S)
            ask(address, "backtrace", timeout_s=_TIMEOUT_S)
            return before, resident_kib(process.pid)
        finally:
            process.kill()
