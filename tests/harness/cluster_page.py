"""What the tests of docs/how-to/clusters.md share: its sections, and the port that it names."""

from __future__ import annotations

import socket

from tests.harness.targets import ROOT

NODE_PORT = 9741
STEPS_OF_RANKS = (
    "SELECT rank, count(*) AS steps FROM python.steps WHERE duration IS NOT NULL GROUP BY 1"
)
_PAGE = (ROOT / "docs" / "how-to" / "clusters.md").read_text("utf-8")


def section(title: str) -> str:
    """The text of a section of the page."""
    return _PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def is_port_taken() -> bool:
    """Whether somebody listens where the page has its node server listen."""
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", NODE_PORT)) == 0
