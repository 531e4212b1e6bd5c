"""Asks all members for what a plan needs, and puts their answers together.

Rules of this file: one deadline for all; who failed is an outcome. The rows keep the order of the
members. Leaves over the rings of this machine run once over many rings, not once for each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from ...client.base import Process
from ...messages.frozen import dataclass
from ...sql.process_columns import added_columns, added_values, concatenated, literal
from ..job.membership import Member, names_of
from ..job.outcomes import Outcome, ask_all
from .budget import Budget
from .by_node import NodeAsker, groups_of
from .errors import UnionTooLarge
from .parts import Asker, Part, run_leaf
from .statements.leaves import Leaf, Plan
from .statements.syntax import Syntax

_LEAST_S = 1.0
_RAW_TOGETHER = 64 << 20
"""Rows of rings of about this many bytes are put through a leaf's statement together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The answers of all members.

    Attributes:
        tables: The rows of each leaf.
        outcomes: Who answered, and who did not.
        notes: What the person should know about how the answer came about.
        rows: How many rows were moved.
        size: Their bytes.
    """

    tables: tuple[pa.Table, ...]
    outcomes: tuple[Outcome[list[Part]], ...]
    notes: tuple[str, ...]
    rows: int
    size: int


def gather(
    plan: Plan,
    members: Sequence[Member],
    *,
    syntax: Syntax,
    budget_bytes: int,
    timeout_s: float,
    token: str | None = None,
) -> Gathered:
    """Ask, in time.

    Raises:
        UnionTooLarge: More would be moved than may be.
    """
    budget = Budget(budget_bytes)
    asker = Asker(plan.leaves, budget, timeout_s=timeout_s)
    chosen = _chosen(plan.leaves, members, syntax)
    outcomes = _ask(chosen, asker, plan.leaves, budget, timeout_s=timeout_s, token=token)
    refused = [o.member for o in outcomes if any(p.is_refused for p in o.value or ())]
    if refused and not budget.is_exceeded:  # what was taken for others has turned out smaller
        again = {o.member: o for o in ask_all(refused, asker.ask, timeout_s=timeout_s, token=token)}
        outcomes = tuple(again.get(o.member, o) for o in outcomes)
    for error in [o.error for o in outcomes]:
        if error is not None and error.code == UnionTooLarge.code:  # a node server refused
            raise error
    if budget.is_exceeded:
        raise UnionTooLarge(
            estimate=budget.estimate, rows=budget.rows, ranks=len(outcomes), budget=budget.limit
        )
    tables = tuple(
        _together(leaf, [o.value[i] for o in outcomes if o.value is not None])
        for i, leaf in enumerate(plan.leaves)
    )
    return Gathered(
        tables=tables,
        outcomes=outcomes,
        notes=_notes(outcomes),
        rows=sum(table.num_rows for table in tables),
        size=sum(_size(table) for table in tables),
    )


def _ask(
    members: Sequence[Member],
    asker: Asker,
    leaves: Sequence[Leaf],
    budget: Budget,
    *,
    timeout_s: float,
    token: str | None,
) -> tuple[Outcome[list[Part]], ...]:
    """Ask each member, those behind one node server by one request."""
    until = time.monotonic() + timeout_s
    groups = groups_of(members) if leaves else {}
    nodes = NodeAsker(groups, leaves, budget, timeout_s=timeout_s, token=token)
    firsts, led = nodes.firsts, nodes.members

    def ask(process: Process, member: Member) -> list[Part]:
        return nodes.ask(member) if member in led else asker.ask(process, member)

    # All by one wait, which Ctrl-C ends.
    single = (member for member in members if member not in led)
    ends = ask_all([*firsts, *single], ask, timeout_s=timeout_s, token=token)
    told, ends = nodes.told(ends[: len(firsts)]), ends[len(firsts) :]
    left_s = max(_LEAST_S, until - time.monotonic())
    again = ask_all(told.again, asker.ask, timeout_s=left_s, token=token)
    found = {**told.outcomes, **{o.member: o for o in (*ends, *again)}}
    return tuple(found[member] for member in members)


def _chosen(leaves: Sequence[Leaf], members: Sequence[Member], syntax: Syntax) -> list[Member]:
    """The members that can have a row of any leaf."""
    if not leaves or not all(leaf.choices for leaf in leaves):
        return list(members)
    kept = []
    for member in members:
        values = [(leaf, added_values(leaf.table, member)) for leaf in leaves]
        if any(_is_chosen(syntax, leaf, row) for leaf, row in values):
            kept.append(member)
    return kept


def _is_chosen(syntax: Syntax, leaf: Leaf, values: dict[str, object]) -> bool:
    """Whether the added values of a process fulfil any choice of a leaf."""
    alias = leaf.alias or leaf.table.name
    columns = ", ".join(values)
    row = [literal(column, values[column.name]) for column in added_columns(leaf.table)]
    source = f'(VALUES ({", ".join(row)})) AS "{alias}" ({columns})'
    choice = " OR ".join(f"({text})" for text in leaf.choices)
    found = syntax.values(f"SELECT {choice} FROM {source}")
    return found[0][0] is True


def _together(leaf: Leaf, parts: Sequence[Part]) -> pa.Table:
    """The rows of a leaf in the order of the members."""
    done: list[pa.Table] = []
    waiting: list[pa.Table] = []

    def finish() -> None:
        if waiting:
            if leaf.is_plain:
                done.extend(waiting)
            else:
                done.append(run_leaf(leaf, concatenated(leaf.table, waiting)))
            waiting.clear()

    for part in parts:
        if part.rows is None:
            continue
        if not part.is_raw:
            finish()
            done.append(part.rows)
            continue
        waiting.append(part.rows)
        if sum(_size(rows) for rows in waiting) > _RAW_TOGETHER:
            finish()
    finish()
    if leaf.items:
        return _partials(leaf, done)
    return concatenated(leaf.table, done)


def _partials(leaf: Leaf, done: Sequence[pa.Table]) -> pa.Table:
    """Parts of aggregates; of nobody, what an empty table gives."""
    if not done:
        return run_leaf(leaf, concatenated(leaf.table, []))
    return pa.concat_tables(done, promote_options="permissive")


def _size(rows: pa.Table) -> int:
    return sum(column.nbytes for column in rows.columns if column.null_count < len(column))


def _notes(outcomes: Sequence[Outcome[list[Part]]]) -> tuple[str, ...]:
    """What was noted, each once with those whom it concerns."""
    by_text: dict[str, list[Member]] = {}
    for outcome in outcomes:
        notes = [*outcome.notes, *(n for part in outcome.value or () for n in part.notes)]
        for note in dict.fromkeys(notes):
            by_text.setdefault(note, []).append(outcome.member)
    found = [f"{names_of(members)}: {note}" for note, members in by_text.items()]
    return (*_doubles([outcome.member for outcome in outcomes]), *found)


def _doubles(members: Sequence[Member]) -> list[str]:
    """The ranks that several processes of one job call themselves."""
    by_rank: dict[tuple[str | None, int | None], list[Member]] = {}
    for member in members:
        if member.rank is not None and member.state == "seen":
            by_rank.setdefault((member.job, member.rank), []).append(member)
    return [
        f"rank {rank} is there more than once: processes {', '.join(str(m.pid) for m in those)}"
        for (_, rank), those in by_rank.items()
        if len(those) > 1
    ]
