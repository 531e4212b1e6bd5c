"""How each recorded source stands: whether it records, what it costs, and what it leaves out.

Rules of this file: asks the sources, and changes nothing.
"""

from __future__ import annotations

from .source import Source, SourceReport
from .sources import Sources

_NAMED = 20
"""How many modules a sentence names."""


def report_sources(sources: Sources) -> list[SourceReport]:
    """How each source stands."""
    costs, notes = _costs(sources), _notes(sources)
    reports = []
    for source in sources.all:
        guard = source.guard
        reports.append(
            SourceReport(
                source=guard.source,
                state="failed" if guard.has_failed else _state_of(source, sources),
                cost_s=costs.get(guard.source),
                faults=guard.faults,
                note=guard.problem or notes.get(guard.source),
            )
        )
    return reports


def _costs(sources: Sources) -> dict[str, float]:
    """What sources cost a step, where that is told apart."""
    budget = sources.calls.budget
    if not budget.row_ns:  # which is measured at the end of the first step
        return {}
    costs: dict[str, float] = dict(budget.step_costs)
    costs["modules"] = costs.get("modules", 0.0) + budget.calls_ns
    costs["backward"] = costs.get("backward", 0.0) + budget.hooks_ns
    return {name: cost * 1e-9 for name, cost in costs.items()}


def _notes(sources: Sources) -> dict[str, str | None]:
    """What there is to say of sources that have had no fault."""
    calls = sources.calls
    ways = [calls.calls.way(), _left_out(calls.budget.thinned)]
    return {
        "modules": "; ".join(text for text in ways if text is not None),
        "memory": sources.memory_rows.note(),
        "backward": calls.hooks.guard.problem or _hooked(sources),
        "optimizers": sources.progress.told(),
        "device times": sources.device_times.note(),
        "devices": sources.devices.note(),
        "collectives": sources.collectives.note(),
    }


def _hooked(sources: Sources) -> str:
    """Whose backward passes are on record."""
    budget = sources.calls.budget
    if sources.calls.hooks.in_c is not None:
        if budget.hooked_every == 1:
            return "every pass as a whole, and those of all modules"
        return (
            "every pass as a whole; those of all modules in one step of"
            f" {budget.hooked_every}, to keep within the budget"
        )
    if not budget.row_ns:
        return "every pass as a whole; those of modules after the first step"
    modules = "1 module" if budget.hooked == 1 else f"{budget.hooked} modules"
    return f"every pass as a whole; those of {modules} at every step"


def _state_of(source: Source, sources: Sources) -> str:
    """Whether a source that has not failed records, and if not, why."""
    if source.is_on:
        return "on"
    return "absent" if any(other.is_on for other in sources.all) else "off"


def _left_out(names: tuple[str, ...]) -> str | None:
    """A sentence about modules that are left out of the record."""
    if not names:
        return None
    shown = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"left out of most steps, to keep within the budget: {shown}{more}"
