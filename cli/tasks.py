"""Which commands there are, by what they are for, and other names of theirs.

Rules of this file: names only, and nothing imported: help, completion and preferences need no more.
"""

from __future__ import annotations

from collections.abc import Mapping

TASKS: Mapping[str, tuple[str, ...]] = {
    "Look first": ("list", "overview", "top", "web", "report", "doctor"),
    "Where is it, and why does it not go on": ("backtrace", "hang", "stragglers", "diff"),
    "What takes the time": ("profile", "dataloaders"),
    "What takes the memory": ("memory", "leak", "oom", "fit"),
    "What is in it, and what does it compute": ("summary", "gradients", "arm", "labels"),
    "Ask and change": ("query", "tables", "eval", "repl", "jobs", "act", "mcp"),
    "All runs, after they have ended, too": ("export", "history", "gateway"),
    "The agent and its record": ("run", "attach", "detach", "status", "config", "serve", "file"),
}
"""Every command, by what it is for. The module of its name in ``probing.cli.commands`` holds it, as
``command``."""

_TAKEN = {"list": "list_", "eval": "eval_", "file": "file_"}
"""Names that mean something else to who reads Python."""

COMMANDS = {name: _TAKEN.get(name, name) for names in TASKS.values() for name in names}

SHORT_FORMS = {"bt": "backtrace", "ps": "list", "ls": "list", "sql": "query"}
"""Other names of commands, for those who type them often."""

WITH_WORDS_OF_THEIR_OWN = frozenset(
    {"list", "file", "diff", "attach", "detach", "doctor", "top", "export", "history", "web", "run",
     "serve"}
)  # fmt: skip
"""Commands that take an endpoint, or something that looks like one, as their argument."""
