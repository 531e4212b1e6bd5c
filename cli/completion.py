"""What the shell completes: endpoints and tables.

Rules of this file: a completion is made between two key strokes, so it reads directory names
and the vocabulary, asks no process and imports no library.
"""

from __future__ import annotations

import contextlib

import click
from click.shell_completion import CompletionItem

from ..errors import ProbingError


def complete_endpoints(incomplete: str) -> list[CompletionItem]:
    """The pids of the running processes that have a run folder, and names of the user's own."""
    from ..rundir import folders as rundir
    from .preferences import preferences

    found = []
    with contextlib.suppress(ProbingError):
        folders = rundir.from_env().folders()
        found += [(str(folder.pid), "process") for folder in folders if folder.is_alive()]
    with contextlib.suppress(ProbingError):
        names = preferences().endpoints.items()
        found += [(name, " ".join(words)) for name, words in names]
    return [CompletionItem(word, help=what) for word, what in found if word.startswith(incomplete)]


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
