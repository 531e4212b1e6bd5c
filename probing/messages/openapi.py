"""The OpenAPI description of the routes, made from what `routes` and the bodies declare.

Rules of this file: nothing about a route or a body is said here; only how it is put. What a body is
and means is in the docstring of its class.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from typing import Any

from . import common as wire
from .about import eval as eval_wire
from .limits import TimeLimit
from .routes import ROUTES, Route

_ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "status", "exit_code", "message", "help", "detail"],
            "properties": {
                "code": {"type": "string"},
                "status": {"type": "integer"},
                "exit_code": {"type": "integer"},
                "message": {"type": "string"},
                "help": {"type": "string"},
                "detail": {"type": "object"},
            },
        }
    },
}

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def openapi(version: str, routes: tuple[Route, ...] = ROUTES) -> dict[str, Any]:
    """The OpenAPI 3.1 description of some routes; those of an agent, if not given."""
    schemas: dict[str, Any] = {"Error": _ERROR_SCHEMA}
    paths: dict[str, Any] = {}
    for route in routes:
        operation: dict[str, Any] = {
            "operationId": route.name,
            "summary": route.doc,
            "responses": {
                "200": {"description": "Done.", "content": _answer_content(route, schemas)},
                "default": {
                    "description": "Any error.",
                    "content": {wire.JSON_TYPE: {"schema": {"$ref": "#/components/schemas/Error"}}},
                },
            },
        }
        if parameters := _parameters(route):
            operation["parameters"] = parameters
        if route.request is not None:
            schema = _schema_of(route.request, schemas)
            operation["requestBody"] = {
                "required": True,
                "content": {wire.JSON_TYPE: {"schema": schema}},
            }
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "probing", "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("key", "table")
        if f"{{{name}}}" in route.path
    ]
    for flag in route.flags:
        schema: dict[str, Any] = {"type": "boolean", "default": False}
        found.append({"name": flag.name, "in": "query", "description": flag.doc, "schema": schema})
    for time in route.times:
        schema = {"type": "number", "minimum": 0}
        found.append({"name": time.name, "in": "query", "description": time.doc, "schema": schema})
    return found


def _answer_content(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    if route.answer == "arrow":
        return {wire.ARROW_TYPE: {}}
    if route.answer in {"trace", "allocations"}:
        return {wire.TRACE_TYPE: {}}
    if route.answer == "metrics":
        return {wire.METRICS_TYPE: {}}
    if route.answer == "results":
        return {eval_wire.LINES_TYPE: {}}
    if route.answer == "document":
        return {wire.JSON_TYPE: {"schema": {"type": "object"}}}
    return {wire.JSON_TYPE: {"schema": _schema_of(route.answer, schemas)}}


def _schema_of(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type annotation; dataclasses are collected in `schemas`."""
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    if kind == TimeLimit:
        return {"type": "number", "exclusiveMinimum": 0}
    if typing.get_origin(kind) is tuple:
        return {"type": "array", "items": _schema_of(typing.get_args(kind)[0], schemas)}
    if not dataclasses.is_dataclass(kind):
        return {"anyOf": [_schema_of(member, schemas) for member in typing.get_args(kind)]}
    name = typing.cast("type", kind).__name__
    if name not in schemas:
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = dataclasses.fields(kind)
        schemas[name] = {
            "type": "object",
            "description": _line(inspect.getdoc(kind) or ""),
            "required": [f.name for f in fields if f.default is dataclasses.MISSING],
            "properties": {f.name: _schema_of(hints[f.name], schemas) for f in fields},
        }
        for field, meaning in _meanings(kind).items():
            schemas[name]["properties"][field]["description"] = meaning
    return {"$ref": f"#/components/schemas/{name}"}


def _meanings(cls: Any) -> dict[str, str]:
    """What the docstring of a body says about its members."""
    _, _, section = (inspect.getdoc(cls) or "").partition("Attributes:\n")
    found = re.split(r"^ {4}(\w+): ", section, flags=re.MULTILINE)[1:]
    texts = (re.sub(r"\bNone\b", "null", _line(text)) for text in found[1::2])
    return dict(zip(found[::2], texts, strict=True))


def _line(text: str) -> str:
    """The first paragraph of a text, on one line."""
    return " ".join(text.partition("\n\n")[0].replace("``", "`").split())
