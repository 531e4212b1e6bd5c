"""Which files and processes are ours, not the job's, and where packages are found.

Rules of this file: nothing but paths and words; our paths are found once. `probing/agent` and
`probing/cli` may be links of a checkout, and a file may be named by either way.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

SQL_WORKER = "sql_worker_main.py"
"""The script that a SQL worker runs."""
SQL_WORKER_PARENT = "sql_worker_parent.py"
"""The script of the process that starts it."""
_SCRIPTS = ("probing", SQL_WORKER, SQL_WORKER_PARENT)
_MODULES = tuple(
    f"probing.{name}" for name in ("attach.injectors", "cli", "cluster", "gateway", "mcp", "web")
)
"""What runs by `-m`, but for what runs the program of a user, who may have a package `probing`."""

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def _folders(*names: str) -> tuple[str, ...]:
    """How the names of files in folders of the package begin."""
    paths = [os.path.join(_PACKAGE, name) for name in names]
    both = [either for path in paths for either in (path, os.path.realpath(path))]
    return tuple(dict.fromkeys(os.path.join(path, "") for path in both))


OURS = _folders("", "agent", "cli")
"""How the names of our files begin."""
AGENT = _folders("agent")
"""The same of the agent's alone. The program itself may have been started by a file of ours."""

_INSTALLED = ("/site-packages/", "/dist-packages/")
"""Folders of libraries, as they stand in the names of their files."""


def is_installed(file: str) -> bool:
    """Whether a file is of an installed library, by its absolute name."""
    return any(folder in file for folder in _INSTALLED)


def is_ours(file: str) -> bool:
    """Whether a file is one of ours, by its absolute name."""
    return file.startswith(OURS)


def is_our_command(command: Sequence[str]) -> bool:
    """Whether a command line is that of one of our processes: a command, its helper, a SQL worker.

    What `probing run` has started is the program's own.
    """
    from .arguments import what_python_starts  # not at the agent's start

    first, *rest = what_python_starts(command[1:]) or [""]
    if first == "-m":
        module = rest[0] if rest else ""
        return module == "probing" or module.startswith(_MODULES)
    return os.path.basename(first) in _SCRIPTS


def places_of(*packages: str) -> list[str]:
    """The folders in which this process finds packages, without importing them."""
    from importlib.util import find_spec

    places: dict[str, None] = {}
    for package in packages:
        try:
            spec = find_spec(package)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.origin:
            places[os.path.dirname(os.path.dirname(spec.origin))] = None
    return list(places)
