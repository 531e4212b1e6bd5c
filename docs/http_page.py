"""The page of the HTTP routes and the bodies that travel by them.

Rules of this file: as those of `generate`.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from markdown_parts import anchor, bullets, docstring, first_paragraph, page

from probing.messages import common as wire
from probing.messages.about import (
    act as act_wire,
    allocation as allocation_wire,
    eval as eval_wire,
    job as job_wire,
    labels as labels_wire,
    union as union_wire,
)
from probing.messages.openapi import openapi
from probing.messages.routes import NODE_ROUTES, ROUTES, Route

_HTTP_INTRO = (
    "Served on the agent's unix socket and, if asked for, on TCP (with `Authorization: Bearer"
    " TOKEN`). Bodies are JSON, rows an Arrow IPC stream. A GET changes nothing. `GET"
    " /v1/openapi.json` says the same to programs."
)
_BODIES_INTRO = "`member?` may be left out; `type?` may be null."
_HTTP_ERRORS = (
    'An error has the same body on every route: `{"error": {"code", "status", "exit_code",'
    ' "message", "help", "detail"}}`. The codes are listed in [Errors](errors.md).'
)


def http_page() -> str:
    """Every route and body."""
    schemas: dict[str, Any] = openapi("", (*ROUTES, *NODE_ROUTES))["components"]["schemas"]
    parts = [
        "# HTTP",
        _HTTP_INTRO,
        _HTTP_ERRORS,
        "## Routes",
        bullets((_route(r), r.doc) for r in (*ROUTES, *NODE_ROUTES)),
        "## Bodies",
        _BODIES_INTRO,
    ]
    for name in sorted(set(schemas) - {"Error"}):
        parts += _body_section(_wire_class(name), schemas[name])
    return page(parts)


def _route(route: Route) -> str:
    """A route, with what it takes and gives."""
    takes = f" {_body(route.request)}" if route.request is not None else ""
    return f"`{route.method} {route.path}`{takes} → {_answer(route)}"


def _wire_class(name: str) -> type[Any]:
    """The class of a body."""
    modules = (
        wire,
        allocation_wire,
        act_wire,
        eval_wire,
        job_wire,
        labels_wire,
        union_wire,
    )
    found: type[Any] = next(getattr(module, name) for module in modules if hasattr(module, name))
    return found


def _body(cls: type[Any] | None) -> str:
    """A link to a body's section."""
    return f"[{cls.__name__}](#{anchor(cls.__name__)})" if cls is not None else ""


def _answer(route: Route) -> str:
    """What comes back."""
    if isinstance(route.answer, str):
        return {
            "arrow": f"`{wire.ARROW_TYPE}`",
            "document": "OpenAPI 3.1",
            "trace": f"`{wire.TRACE_TYPE}`",
            "allocations": f"`{wire.TRACE_TYPE}`",
            "results": f"lines of {_body(wire.EvalResult)}",
        }[route.answer]
    return _body(route.answer)


def _body_section(cls: type[Any], schema: dict[str, Any]) -> list[str]:
    """One body: what it is, and its members."""
    meanings = _attribute_docs(cls)
    members = {
        name: f"`{name}{'' if name in schema['required'] else '?'}` {_json_type(member)}"
        for name, member in schema["properties"].items()
    }
    lines = [f"- {term}: {meanings[name]}" for name, term in members.items() if name in meanings]
    plain = [term for name, term in members.items() if name not in meanings]
    lines += [f"- {', '.join(plain)}"] if plain else []
    return [f"### {cls.__name__}", first_paragraph(cls), "\n".join(lines)]


def _json_type(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{anchor(name)})"
    if "anyOf" in schema:
        types = [_json_type(member) for member in schema["anyOf"]]
        is_nullable = "null" in types
        return " or ".join(name for name in types if name != "null") + "?" * is_nullable
    if schema["type"] == "array":
        return f"list of {_json_type(schema['items'])}"
    return str(schema["type"])


def _attribute_docs(cls: type[Any]) -> dict[str, str]:
    """What the docstring of a class says about its attributes."""
    _, _, section = docstring(cls).partition("Attributes:\n")
    names = [field.name for field in dataclasses.fields(cls)]
    found = re.split(r"^ {4}(\w+): ", section, flags=re.MULTILINE)[1:]
    texts = (re.sub(r"\bNone\b", "null", " ".join(text.split())) for text in found[1::2])
    docs = dict(zip(found[::2], (text.replace("``", "`") for text in texts), strict=True))
    if unknown := sorted(set(docs) - set(names)):
        raise LookupError(f"{cls.__name__} describes {unknown[0]}, which it does not have")
    return docs
