"""Which commands there are, by what they are for, and other names of theirs.

Rules of this file: names only, and nothing imported: help, completion and preferences need no more.
"""

from __future__ import annotations

from collections.abc import Mapping

TASKS: Mapping[str, Mapping[str, str]] = {
    "Look first": {
        "list": "list_",
        "overview": "overview",
        "top": "top",
        "web": "web",
        "report": "report",
        "doctor": "doctor",
    },
    "Where is it, and why does it not go on": {
        "backtrace": "backtrace",
        "hang": "hang",
        "stragglers": "stragglers",
        "diff": "diff",
    },
    "What takes the time": {
        "profile": "profile",
        "dataloaders": "dataloaders",
    },
    "What takes the memory": {
        "memory": "memory",
        "leak": "leak",
        "oom": "oom",
        "fit": "fit",
    },
    "What is in it, and what does it compute": {
        "summary": "summary",
        "gradients": "gradients",
        "arm": "arm",
        "labels": "labels",
    },
    "Ask and change": {
        "query": "query",
        "tables": "tables",
        "eval": "eval_",
        "repl": "repl",
        "jobs": "jobs",
        "act": "act",
        "mcp": "mcp",
    },
    "All runs, after they have ended, too": {
        "export": "export",
        "history": "history",
    },
    "The agent and its record": {
        "run": "run",
        "attach": "attach",
        "detach": "detach",
        "status": "status",
        "config": "config",
        "serve": "serve",
        "file": "file_",
    },
}
"""Every command, by what it is for, and the module of ``probing.cli.commands`` that holds it, as
``command``."""

COMMANDS = {name: module for commands in TASKS.values() for name, module in commands.items()}

SHORT_FORMS = {"bt": "backtrace", "ps": "list", "ls": "list", "sql": "query"}
"""Other names of commands, for those who type them often."""
