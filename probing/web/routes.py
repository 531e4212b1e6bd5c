"""What the page asks its server, each route declared once, with the bodies.

Rules of this file: as those of `probing.messages.routes`. The routes are between a page and the
server that has sent it, both of one version: no contract for others. Those with access `change`
have something recorded in the next steps of a training; what changes a training has access `eval`.
"""

from __future__ import annotations

from typing import Any

from ..messages.about.act import ActRequest
from ..messages.frozen import dataclass
from ..messages.limits import TimeLimit
from ..messages.routes import Access, Route


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """One SQL statement.

    Attributes:
        endpoint: Of which process, as the list of processes names it.
        format: ``arrow`` for a stream of record batches, ``parquet`` for a file.
        of_job: Of all ranks of its job.
    """

    endpoint: str
    sql: str
    timeout_s: TimeLimit | None = None
    max_rows: int | None = None
    format: str = "arrow"
    of_job: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuestion:
    """What is asked of one process beside SQL; with `of_job` of all ranks of its job."""

    endpoint: str
    of_job: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageEval:
    """Code to run in a process."""

    endpoint: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAct:
    """One action to apply between two steps of a training."""

    endpoint: str
    asked: ActRequest


def _file(name: str, path: str, doc: str) -> Route:
    return Route(name=name, method="GET", path=path, access="read", answer="document", doc=doc)


OPEN_ROUTES: tuple[Route, ...] = (
    _file("document", "/", "The page; it holds nothing of any process."),
    _file("script", "/page.js", "What the page does."),
    _file("style", "/page.css", "How it looks."),
)
"""What is had without a token: it is in every installation."""


def _asking(name: str, doc: str, request: type[Any], access: Access = "read") -> Route:
    path = f"/page/{name}"
    return Route(
        name=name, method="POST", path=path, access=access, request=request, answer="arrow", doc=doc
    )


DATA_ROUTES: tuple[Route, ...] = (
    _file("processes", "/page/processes", "The processes there are, and what each does."),
    _file("catalog", "/page/catalog", "All tables with their columns, and the saved questions."),
    _asking("query", "The answer to a statement.", PageQuery),
    _asking("about", "What a process is, where it is stuck, how it has ended.", PageQuestion),
    _asking("findings", "What the record of a process shows to be wrong.", PageQuestion),
    _asking("doctor", "All that `doctor` finds.", PageQuestion, "change"),
    _asking("gradients", "Has the gradients of the next step recorded.", PageQuestion, "change"),
    _asking("holders", "Who refers to the largest tensors.", PageQuestion, "change"),
    _asking("fit", "Predicts the largest batch that fits.", PageQuestion, "change"),
    _asking("report", "A run in one file.", PageQuestion),
    _asking("eval", "Runs code in a process.", PageEval, "eval"),
    _asking("act", "Changes something in a training.", PageAct, "eval"),
    _asking("stacks", "Where the threads of a process are.", PageQuestion),
    _asking("merged", "The stacks of all ranks of its job, equal ones once.", PageQuestion),
)
