"""What a report of a run is made of: steps, slowest step, stacks, memory, findings, environment.

Rules of this file: nothing is asked that holds a training which gets on. The statements are those
of the page, which draws their answers. What cannot be had is left out, and the report says so.
"""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ...._version import VERSION
from ....client.recent_steps import STILL
from ....errors import ProbingError
from ....messages import common as wire
from ....messages.frozen import dataclass
from ....page import page_file
from ....tables import ENVIRONMENT
from ....units import age
from ..overview import Overview, overview_of

if TYPE_CHECKING:
    from ....client.base import Process
    from ....messages.about.stacks import Backtrace

_WORST = """SELECT step, duration FROM python.steps
WHERE step >= (SELECT min(step) FROM python.torch_trace)
ORDER BY duration IS NULL DESC, duration DESC, seq DESC LIMIT 2"""
"""The step in progress, if there is one, and the slowest of those whose calls are on record."""
_FINDINGS_S = 15.0
"""A report is written once and kept: it waits longer for its findings than a screen does."""
_MEMORY = {
    "resident": "resident set",
    "group": "memory cgroup",
    "limit": "what it may use",
    "device": "given out by the device's allocator",
    "device_limit": "the device's memory",
}


@dataclass(slots=True)
class RunReport:
    """All of it.

    Attributes:
        record: What the page draws, see ``report.js``.
    """

    title: str
    record: dict[str, Any]


@dataclass(slots=True)
class _Gathering:
    """Asks one thing after the other; what fails is told and left out.

    Attributes:
        missing: Why something is left out, a sentence each.
    """

    process: Process
    missing: list[str] = field(default_factory=list)

    def ask(self, what: str, question: Callable[[], Any], default: Any) -> Any:
        """The answer, else the default."""
        try:
            return question()
        except ProbingError as error:
            self.missing.append(f"{what}: {error.message}")
            return default

    def stream(self, sql: str) -> str:
        """The answer to a statement as an Arrow stream, in base64."""
        import pyarrow as pa

        with self.process.query(sql) as answer:
            table = answer.to_arrow()
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return base64.b64encode(sink.getvalue()).decode()


def report_of(process: Process) -> RunReport:
    """Look at a process, alive or ended.

    Raises:
        ProbingError: It is not there, or nothing can be learnt of it.
    """
    seen = overview_of(process, findings_s=_FINDINGS_S)
    gathering = _Gathering(process)
    threads = gathering.ask("stacks", lambda: _threads(process, seen), None)
    steps_sql = page_file("steps.sql").decode().strip().replace("$range", "true")
    has_steps = seen.pace is not None
    record = {
        "facts": _facts(seen),
        "problems": [*seen.problems, *([f"Its main thread {seen.doing}."] if seen.doing else [])],
        "threads": None if threads is None else json.loads(wire.encode(threads)),
        "has_ended": seen.state == "dead",
        "findings": {
            "judged": seen.judged,
            "late": seen.late,
            "findings": [_finding(f) for f in seen.findings],
        },
        "steps": gathering.ask("steps", lambda: gathering.stream(steps_sql), None)
        if has_steps
        else None,
        "calls": gathering.ask("calls", lambda: _calls(gathering), []) if has_steps else [],
        "memory": _memory(seen),
        "environment": gathering.ask("environment", lambda: _environment(process), []),
        "missing": gathering.missing,
    }
    who = f"rank {seen.rank}" if seen.rank is not None else f"process {seen.pid}"
    return RunReport(title=f"{who} on {seen.host}" if seen.host else who, record=record)


def _facts(seen: Overview) -> list[tuple[str, str]]:
    """Who it is, as names and values."""
    rank = "" if seen.rank is None else str(seen.rank)
    of = f" of {seen.world_size}" if rank and seen.world_size else ""
    facts = (
        ("command", seen.command),
        ("process", f"{seen.pid} on {seen.host}" if seen.host else str(seen.pid)),
        ("rank", f"{rank}{of}"),
        ("state", _state(seen)),
        ("step", "" if seen.pace is None else f"{seen.pace.step:,}"),
        ("written", time.strftime("%Y-%m-%d %H:%M:%S %z")),
        ("by", f"probing {VERSION}"),
    )
    return [(name, value) for name, value in facts if value]


def _state(seen: Overview) -> str:
    """What it does, and since when where no step ends."""
    if seen.state == STILL and seen.pace is not None:
        return f"{STILL}, for {age(seen.pace.age_s)} now"
    return seen.state


def _threads(process: Process, seen: Overview) -> Backtrace | None:
    """Where its threads are, or were; None of a training that gets on: it is elsewhere by then."""
    return None if seen.state == "training" else process.backtrace()


def _finding(found: Any) -> dict[str, Any]:
    names = ("rule", "certainty", "summary", "since_step", "fix", "next")
    return {name: getattr(found, name) for name in names} | {"evidence": list(found.evidence)}


def _calls(gathering: _Gathering) -> list[dict[str, str]]:
    """The calls of the slowest step, and of the one that is in progress."""
    text = page_file("calls.sql").decode().strip()
    found: Sequence[dict[str, Any]] = gathering.process.query(_WORST).to_pylist()
    found = [row for row in found if row["duration"] is None] + [
        row for row in found if row["duration"] is not None
    ][:1]
    return [
        {
            "title": f"Step {row['step']:,}, "
            + ("which has not ended" if row["duration"] is None else "the slowest on record"),
            "rows": gathering.stream(text.replace("$step", str(int(row["step"])))),
        }
        for row in found
    ]


def _memory(seen: Overview) -> list[tuple[str, int]]:
    if seen.memory is None:
        return []
    values = ((word, getattr(seen.memory, name)) for name, word in _MEMORY.items())
    return [(word, value) for word, value in values if value is not None]


def _environment(process: Process) -> list[dict[str, Any]]:
    """What it runs in, without secrets."""
    rows = process.live(ENVIRONMENT.name).dicts()
    return [
        {
            "kind": row["kind"],
            "name": row["name"],
            "value": None if row["is_secret"] else row["value"],
        }
        for row in rows
    ]
