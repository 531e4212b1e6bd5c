"""Which SQL worker of a few answers a statement."""

from __future__ import annotations

from probing.cluster.node.workers import Workers
from probing.settings import Settings

STEPS = "SELECT step, duration FROM python.steps WHERE step >= {}"


def test_who_has_the_rows_is_asked_again_unless_somebody_waits_there() -> None:
    """The same statement about other steps goes where it went before; a queue goes before that."""
    workers = Workers(Settings)
    workers._waiting = [1, 0, 0]
    assert workers._choose("/run/1", STEPS.format(1)) == 1
    workers._waiting = [0, 0, 0]
    assert workers._choose("/run/1", STEPS.format(990000)) == 1
    assert workers._choose("/run/2", STEPS.format(1)) == 0
    workers._waiting = [0, 1, 0]
    assert workers._choose("/run/1", STEPS.format(2)) == 0


def test_few_statements_are_remembered() -> None:
    """However many processes are asked."""
    workers = Workers(Settings)
    for number in range(1000):
        workers._choose(f"/run/{number}", "SELECT 1")
    assert len(workers._before) < 100
