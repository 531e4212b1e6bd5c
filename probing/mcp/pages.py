"""The pages of the documentation, as an agent reads them.

Rules of this file: `docs` beside it has links to the pages of a checkout, and in a wheel the pages
themselves. Only what the list names is read, and when it is asked for.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from mcp.server.mcpserver.exceptions import ResourceNotFoundError

_DOCS = Path(__file__).parent / "docs"
_ENTRY = re.compile(r"^- \[(.+?)\]\((\S+)\.md\): (.+)$", re.MULTILINE)
_README = "probing: What it is, how it is installed, and the first commands."
_MOST_SHOWN = 60
"""Of a name that is none."""


def listing() -> str:
    """Each page with its title and what it is for, one a line."""
    return "\n".join(f"{name}: {about}" for name, about in _all().items())


def page(name: str) -> str:
    """The text of a page.

    Args:
        name: As the list has it, or with `.md` as links do.

    Raises:
        ResourceNotFoundError: There is none of that name.
    """
    known, wanted = _all(), name.removesuffix(".md")
    if wanted not in known:
        raise ResourceNotFoundError(_no_page(wanted, known))
    return (_DOCS / f"{wanted}.md").read_text("utf-8")


def _all() -> dict[str, str]:
    """What each page is about, by its name."""
    entries = _ENTRY.findall((_DOCS / "llms.txt").read_text("utf-8"))
    return {"README": _README} | {name: f"{title}: {about}" for title, name, about in entries}


def _no_page(name: str, known: dict[str, str]) -> str:
    """One sentence that says what to read instead."""
    near = [one for one in known if one.rpartition("/")[2] == name.rpartition("/")[2]]
    near = near or get_close_matches(name, known, n=2)
    meant = f", but {' and '.join(near)}" if near else ""
    shown = name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}..."
    return f"There is no page {shown}{meant}: probing://pages has the names of all."
