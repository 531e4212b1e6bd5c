"""How the record of a process stands: its agent, its sources, what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...diagnosis.device_use import DeviceUse, device_use
from ...diagnosis.restarting import Restart, newest_before
from ...errors import ProbingError
from ...messages.common import TablesAnswer
from ...messages.frozen import dataclass
from ...postmortem.not_finite import SINCE, NotFinite, since_of
from ...tables import SOURCES, TABLES_BY_NAME

if TYPE_CHECKING:
    from ...client.base import Process
    from ...messages.card import Card

_COSTS = """
    SELECT count(*) AS steps, median(cost_s) AS cost_s, median(share) AS share,
        median(duration) AS step_s
    FROM (FROM probing.overhead WHERE duration IS NOT NULL ORDER BY step DESC LIMIT 100)
"""
_UNENDED = """
    SELECT count(*) FILTER (stage = 'backward') AS passes,
        (SELECT count(*) FROM python.steps WHERE duration IS NOT NULL) AS calls
    FROM python.torch_trace WHERE depth = 0 AND duration IS NOT NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """One source.

    Attributes:
        cost_s: What it costs a step, in seconds.
        rows: Rows that its table has ever had.
        dropped: Rows of it that could not be written, or not whole.
    """

    source: str
    state: str
    table: str
    cost_s: float | None
    faults: int
    note: str | None
    rows: int | None
    dropped: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """A process's record.

    Attributes:
        sources: None where the agent does not tell.
        silence: Why it does not.
        steps: How many of the last steps the two figures after it are of.
        cost_s: What recording a step costs, in seconds: the sum of the sources where these are
            told, else a median.
        share: The share of a step that this is.
        passes: How many backward passes are on record, where no step of a training has ended.
        calls: How many steps are on record there: calls of a model, without a backward pass.
        limit: The share that the setting `overhead` allows; None where the agent does not tell.
        not_finite: Since when the loss has not been finite; None while it is.
        device: What its device does; None where it uses none.
        restart: From which checkpoint to start again, where it is not, and one is known.
    """

    card: Card
    sources: tuple[SourceStatus, ...] | None
    silence: str | None
    steps: int
    cost_s: float | None
    share: float | None
    passes: int = 0
    calls: int = 0
    limit: float | None = None
    not_finite: NotFinite | None = None
    restart: Restart | None = None
    device: DeviceUse | None = None


def report_on(process: Process) -> StatusReport:
    """Ask a process how its record stands.

    Raises:
        ProbingError: Not even its files can be read.
    """
    card, tables = process.status(), process.tables()
    costs = process.query(_COSTS).to_pylist()[0]
    step_s = costs.pop("step_s")
    since = since_of(process.query(SINCE).to_pylist())
    silence = sources = limit = None
    try:
        live = process.live(SOURCES.name)
        limit = _limit_of(process)
    except ProbingError as error:
        silence = error.message
    else:
        silence = live.note
        rows = live.dicts()
        sources = tuple(_source(row, tables) for row in rows)
        told = [source.cost_s for source in sources if source.cost_s is not None]
        if told and step_s:
            costs |= {"cost_s": sum(told), "share": sum(told) / step_s}
    return StatusReport(
        card=card,
        sources=sources,
        silence=silence,
        limit=limit,
        not_finite=since,
        **({} if costs["steps"] else process.query(_UNENDED).to_pylist()[0]),
        restart=None if since is None else newest_before(process, since.step),
        device=device_use(process),
        **costs,
    )


def _limit_of(process: Process) -> float | None:
    """The share of a step that recording may cost, by the setting in force."""
    values = [each.value for each in process.settings().settings if each.name == "overhead"]
    return float(values[0]) / 100 if values else None


def _source(row: Mapping[str, Any], tables: TablesAnswer) -> SourceStatus:
    """A source with what its table holds."""
    short = str(row["table"]).rpartition(".")[2]
    name = TABLES_BY_NAME[short].name if short in TABLES_BY_NAME else short
    written = {status.name: (status.written, status.dropped) for status in tables.tables}
    rows, dropped = written.get(name, (None, None))
    return SourceStatus(**row, rows=rows, dropped=dropped)
