"""How long the whole command takes from Enter to the answer."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator

from tests.harness.targets import start_program

from .measures import Measure, measure_in_turn, rounds_for, scaled
from .processes import cost_of, temporary_home, user_env

_SQL = "SELECT 1"


def measure(effort: float) -> Iterator[Measure]:
    """Against an idle process, by its pid and by its TCP port, beside a bare Python."""
    with temporary_home() as home:
        target = start_program(
            "idle", home=home, cwd=home, PROBING="all", PROBING_LISTEN="127.0.0.1:0"
        )
        try:
            target.wait_for_agent()
            card = target.folder.read_card()
            if card is None or card.listen is None:
                raise RuntimeError(f"no TCP listener: {card}")
            probing = [sys.executable, "-m", "probing"]
            commands = (
                [*probing, str(target.pid), "query", "--format=jsonl", _SQL],
                [*probing, "-t", card.listen, "query", "--format=jsonl", _SQL],
                [*probing, "--version"],
                [sys.executable, "-c", "pass"],
            )
            starts = [functools.partial(cost_of, argv, user_env(home)) for argv in commands]
            measure_in_turn(2, *starts)  # files are cached, the SQL worker is there
            found = measure_in_turn(rounds_for(20, effort), *starts)
        finally:
            target.reap()
    whats = (
        f"probing PID query '{_SQL}'",
        f"probing -t HOST:PORT query '{_SQL}'",
        "probing --version",
        "python -c pass",
    )
    for number, (what, costs) in enumerate(zip(whats, found, strict=True)):
        asks = number < 2
        yield Measure(
            what=what,
            unit="ms",
            values=scaled([cost.wall for cost in costs], 1e3),
            must=600 if asks else None,
            aim=350 if asks else None,
        )
        yield Measure(
            what=f"{what}, processor time",
            unit="ms",
            values=scaled([cost.cpu for cost in costs], 1e3),
            must=220 if number == 0 else None,
            aim=150 if number == 0 else None,
        )
