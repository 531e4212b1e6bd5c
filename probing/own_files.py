"""Which files are ours, whose frames say nothing about the job, and where packages are found.

Rules of this file: nothing but paths; ours are found once. `probing/agent` and `probing/cli` may
be links of a checkout, and a file may be named by either way.
"""

from __future__ import annotations

import os

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


def is_ours(file: str) -> bool:
    """Whether a file is one of ours, by its absolute name."""
    return file.startswith(OURS)


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
