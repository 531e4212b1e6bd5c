"""What the shell completes: endpoints, tables, saved questions, and words of SQL.

Rules of this file: a completion is made between two key strokes, so it reads directory names, the
cards where ranks are asked for, and the vocabulary; it asks no process and imports no library.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from ..errors import ProbingError

if TYPE_CHECKING:
    from ..rundir.folders import ProcessFolder
    from ..tables import Table

_FORMS = ("rank:", "job:")
_KEYWORDS = tuple(
    re.findall(
        r"\w+",
        "SELECT DISTINCT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET JOIN LEFT USING AND OR NOT"
        " NULL IS IN LIKE BETWEEN CASE WHEN THEN ELSE END AS DESC ASC WITH UNION ALL EXCEPT OVER"
        " PARTITION FILTER DESCRIBE SHOW TABLES SUMMARIZE EXPLAIN EXCLUDE",
    )
)
_FUNCTIONS = ("any_value", "avg", "count", "lag", "max", "median", "min", "round", "sum")
_WORD = re.compile(r"[\w.]*$")
_PLACE_OF_TABLE = re.compile(r"\b(?:from|join|describe|summarize)\s+$", re.IGNORECASE)


def complete_endpoints(incomplete: str, *, several: bool = False) -> list[CompletionItem]:
    """The pids of the running processes that have a run folder, and names of the user's own.

    Args:
        several: Whether what stands for several is offered before anything is typed.
    """
    from ..rundir import folders as rundir
    from .preferences import preferences

    found = []
    with contextlib.suppress(ProbingError):
        folders = rundir.from_env().folders()
        living = [folder for folder in folders if folder.is_alive()]
        found += [(str(folder.pid), "process") for folder in living]
        if several:
            found.append(("all", "all processes of this machine"))
        has_begun = any(form.startswith(incomplete[: len(form)]) for form in _FORMS)
        if has_begun and (incomplete or several):
            found += _ranks_and_jobs(living)
    with contextlib.suppress(ProbingError):
        names = preferences().endpoints.items()
        found += [(name, " ".join(words)) for name, words in names]
    return [CompletionItem(word, help=what) for word, what in found if word.startswith(incomplete)]


def _ranks_and_jobs(living: Sequence[ProcessFolder]) -> list[tuple[str, str]]:
    """The ways to name the ranks and jobs of processes."""
    cards = [card for folder in living if (card := folder.read_card()) is not None]
    ranks = sorted({card.rank for card in cards if card.rank is not None})
    jobs = sorted({card.job for card in cards if card.job})
    ranked = sorted((c.job, c.rank) for c in cards if c.job and c.rank is not None)
    return [
        *((f"rank:{rank}", "rank") for rank in ranks),
        *((f"job:{job}", "job") for job in jobs),
        *((f"job:{job}/rank:{rank}", "rank of a job") for job, rank in ranked),
    ]


def complete_endpoint_option(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """As `complete_endpoints`, for the option ``-t``."""
    return complete_endpoints(incomplete, several=True)


def complete_tables(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The names of the tables, with their schema or without, as the word began."""
    from ..tables import OWN_SCHEMA, SCHEMA

    begins = [incomplete.startswith(s[: len(incomplete)]) for s in (SCHEMA, OWN_SCHEMA)]
    with_schema = bool(incomplete) and any(begins)
    tables = _tables_of(ctx)
    names = ((table.full_name if with_schema else table.name, table.kind) for table in tables)
    return [CompletionItem(name, help=kind) for name, kind in names if name.startswith(incomplete)]


def complete_questions(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The names of the saved questions, once an `@` is typed."""
    if not incomplete.startswith("@"):
        return []
    from .questions.library import all_questions

    names = ((f"@{question.name}", question.doc) for question in all_questions())
    return [CompletionItem(name, help=doc) for name, doc in names if name.startswith(incomplete)]


def complete_sql(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A saved question, or the statement with its last word as it may go on."""
    if incomplete.startswith("@") or not incomplete:
        return complete_questions(ctx, param, incomplete)
    words = sql_words(incomplete, _tables_of(ctx))
    return [CompletionItem(incomplete[:start] + word) for start, word in words]


def _tables_of(context: click.Context) -> tuple[Table, ...]:
    """All tables: those that scripts have declared are of the processes that are asked, if any."""
    from ..ring.peek import own_tables
    from ..rundir import folders as rundir
    from ..tables import TABLES

    asked = {str(word) for word in getattr(context.obj, "endpoints", ())}
    found: dict[str, Table] = {}
    with contextlib.suppress(ProbingError):
        for folder in rundir.from_env().folders():
            is_meant = str(folder.pid) in asked or (folder.is_alive() and not _are_pids(asked))
            for table in own_tables(folder) if is_meant else ():
                found.setdefault(table.name, table)
    return (*TABLES, *found.values())


def _are_pids(words: Collection[str]) -> bool:
    """Whether endpoints are pids, and nothing that stands for others."""
    return bool(words) and all(word.isdecimal() for word in words)


def sql_words(text: str, tables: Sequence[Table] = (), rest: str = "") -> list[tuple[int, str]]:
    """How the last word of a statement can go on, and where it begins.

    After FROM tables; else columns of the tables that the statement names, functions and keywords.

    Args:
        tables: Those that there are; none for those that every process has.
        rest: What stands behind the cursor already, and may name tables, too.
    """
    if not tables:
        from ..tables import TABLES as tables  # noqa: N811

    found = _WORD.search(text)
    start = 0 if found is None else found.start()
    begun = text[start:]
    if text.count("'") % 2:  # within a text
        return []
    if _PLACE_OF_TABLE.search(text[:start]):
        has_schema = "." in begun
        names = (table.full_name if has_schema else table.name for table in tables)
        return [(start, name) for name in names if name.startswith(begun)]
    if not begun:
        return []
    named = {word.rpartition(".")[2] for word in re.findall(r"[\w.]+", f"{text} {rest}")}
    used = [table for table in tables if table.name in named] or tables
    columns = sorted({column.name for table in used for column in table.columns})
    keywords = [word if begun.isupper() else word.lower() for word in _KEYWORDS]
    words = dict.fromkeys((*columns, *_FUNCTIONS, *keywords))
    return [(start, word) for word in words if word.startswith(begun)]


def complete_settings(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The names of the settings that a running process can change, ready for a value."""
    from ..settings import SETTINGS

    names = (f"{setting.name}=" for setting in SETTINGS if setting.live)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
