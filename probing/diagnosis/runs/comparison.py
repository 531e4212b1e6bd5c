"""From two runs to all that differs between them, and what most likely explains it.

Rules of this file: puts together; what is compared, and how, stands in the files beside it.
"""

from __future__ import annotations

from ...errors import ProbingError
from ...messages.frozen import InNotebooks, dataclass
from .commits import not_committed
from .effects import Effect, Measure
from .interval import LEAST_STEPS
from .levels import Losses, higher_loss, losses, lost_loss, memory, more_memory
from .record import Name, Run, together
from .setup import Difference, differences
from .speed import modules, phases, slower


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison(InNotebooks):
    """All that differs between two runs.

    Attributes:
        steps: How many steps of each were compared.
        has_common: Whether those have the same numbers.
        differences: What they were set up with, what was typed first.
        measures: A step and its phases, then the memory.
        modules: Those first that differ most.
        effects: What came of it, the surest and largest first.
        not_committed: Of each run, the files that were not as its commit has them; None where that
            cannot be told.
        not_looked_at: What was not compared, and why.
    """

    before: Run
    after: Run
    steps: tuple[int, int]
    has_common: bool
    differences: tuple[Difference, ...]
    measures: tuple[Measure, ...]
    modules: tuple[Measure, ...]
    losses: Losses | None
    effects: tuple[Effect, ...]
    not_committed: tuple[tuple[str, ...] | None, tuple[str, ...] | None]
    not_looked_at: tuple[tuple[str, str], ...]


def compare_runs(before: Run, after: Run, secrets: frozenset[Name]) -> RunComparison:
    """Put two runs beside each other.

    Args:
        secrets: Names in their environments whose values must not be shown.
    """
    missed: list[tuple[str, str]] = []
    first, second, has_common = together(before, after)
    found = differences(before, after, secrets)
    measured = phases(before, after)
    of_modules: tuple[Measure, ...] = ()
    if not measured:
        few = min(len(first), len(second))
        why = f"one of them has {few} steps after its start on record; {LEAST_STEPS} are needed"
        missed.append(("speed", why))
    else:
        try:
            of_modules = modules(before, after)
        except ProbingError as error:
            missed.append(("modules", error.message.rstrip(".")))
    held, lost = memory(before, after), losses(before, after)
    missed += _missed(before, after, held, lost)
    effects = [
        *_of_losses(lost_loss(before, after, found), higher_loss(before, lost, found)),
        slower(before, after, measured, of_modules, found),
        more_memory(before, held, found),
    ]
    told = [effect for effect in effects if effect is not None]
    told.sort(key=lambda effect: (effect.certainty == "possible", -effect.weight))
    return RunComparison(
        before=before,
        after=after,
        steps=(len(first), len(second)),
        has_common=has_common,
        differences=found,
        measures=(*measured, *([held] if held is not None else [])),
        modules=of_modules,
        losses=lost,
        effects=tuple(told),
        not_committed=(not_committed(before.environment), not_committed(after.environment)),
        not_looked_at=tuple(missed),
    )


def _of_losses(lost: Effect | None, level: Effect | None) -> tuple[Effect | None, ...]:
    """What is told of losses: that one is lost goes first, and a lost run has no better loss."""
    is_told = lost is None or level is None or lost.is_worse == level.is_worse
    return lost, level if is_told else None


def _missed(
    before: Run, after: Run, held: Measure | None, lost: Losses | None
) -> list[tuple[str, str]]:
    """What could not be compared."""
    found = [
        ("set-up", f"nothing is kept of what {run.name} ran in")
        for run in (before, after)
        if not run.environment
    ]
    if held is None:
        found.append(("memory", "it was measured in too few steps of one of them"))
    if lost is None or lost.before is None:
        found.append(("loss", "there are too few steps of which both have a finite loss"))
    return found
