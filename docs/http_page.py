"""The page of the HTTP routes.

Rules of this file: as those of `generate`.
"""

from __future__ import annotations

from typing import Any

from markdown_parts import bullets, page

from probing.messages import common as wire
from probing.messages.routes import NODE_ROUTES, ROUTES, Route

_INTRO = (
    "Served on the agent's unix socket and, if asked for, on TCP (with `Authorization: Bearer"
    " TOKEN`). Bodies are JSON, rows an Arrow IPC stream. A GET changes nothing."
)
_BODIES = (
    "`GET /v1/openapi.json` is the description for programs, and says what the members of each body"
    " are and mean."
)
_ERRORS = (
    'An error has the same body on every route: `{"error": {"code", "status", "exit_code",'
    ' "message", "help", "detail"}}`. The codes are listed in [Errors](errors.md).'
)


def http_page() -> str:
    """Every route."""
    return page(
        [
            "# HTTP",
            _INTRO,
            _BODIES,
            _ERRORS,
            "## Routes",
            bullets((_route(r), r.doc) for r in (*ROUTES, *NODE_ROUTES)),
        ]
    )


def _route(route: Route) -> str:
    """A route, with what it takes and gives."""
    takes = f" {_body(route.request)}" if route.request is not None else ""
    return f"`{route.method} {route.path}`{takes} → {_answer(route)}"


def _body(cls: type[Any] | None) -> str:
    """The name of a body."""
    return f"`{cls.__name__}`" if cls is not None else ""


def _answer(route: Route) -> str:
    """What comes back."""
    if isinstance(route.answer, str):
        return {
            "arrow": f"`{wire.ARROW_TYPE}`",
            "document": "OpenAPI 3.1",
            "trace": f"`{wire.TRACE_TYPE}`",
            "metrics": f"`{wire.METRICS_TYPE}`",
            "allocations": f"`{wire.TRACE_TYPE}`",
            "results": f"lines of {_body(wire.EvalResult)}",
        }[route.answer]
    return _body(route.answer)
