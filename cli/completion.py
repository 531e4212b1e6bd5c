"""What the shell completes: endpoints and tables.

Rules of this file: a completion is made between two key strokes, so it reads directory names
and the vocabulary, asks no process and imports no library.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from ..errors import ProbingError


def complete_endpoints(incomplete: str) -> list[CompletionItem]:
    """The pids of the running processes that have a run folder."""
    from ..rundir import folders as rundir

    try:
        folders = rundir.from_env().folders()
    except ProbingError:
        return []
    pids = (str(folder.pid) for folder in folders if folder.is_alive())
    return [CompletionItem(pid, help="process") for pid in pids if pid.startswith(incomplete)]


def complete_endpoint_option(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """As `complete_endpoints`, for the option ``-t``."""
    return complete_endpoints(incomplete)


def complete_tables(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The names of the tables, with their schema or without, as the word began."""
    from ..tables import OWN_SCHEMA, SCHEMA, TABLES

    begins = [incomplete.startswith(s[: len(incomplete)]) for s in (SCHEMA, OWN_SCHEMA)]
    with_schema = bool(incomplete) and any(begins)
    names = ((table.full_name if with_schema else table.name, table.kind) for table in TABLES)
    return [CompletionItem(name, help=kind) for name, kind in names if name.startswith(incomplete)]


def complete_questions(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The names of the saved questions, once an `@` is typed."""
    from .questions.library import QUESTIONS

    if not incomplete.startswith("@"):
        return []
    names = ((f"@{question.name}", question.doc) for question in QUESTIONS)
    return [CompletionItem(name, help=doc) for name, doc in names if name.startswith(incomplete)]


def complete_settings(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The names of the settings that a running process can change, ready for a value."""
    from ..settings import SETTINGS

    names = (f"{setting.name}=" for setting in SETTINGS if setting.live)
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
