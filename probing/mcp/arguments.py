"""What is said to an agent that calls a tool which is not there, or not as it is to be called.

Rules of this file: one sentence that says what to give instead, from the tool's own description.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

_MOST_SHOWN = 60
"""Of what was given."""
_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}
_TOOLS = {"backtrace": "stacks", "list": "list_targets", "tables": "describe_tables"}
"""Of commands whose tools have other names."""
_ALLOWED_BY = {"eval": "--allow-eval", "act": "--allow-act"}


class Server(MCPServer[Any]):
    """A server whose answers to wrong calls say what to give instead."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> Any:
        """Call a tool.

        Raises:
            ToolError: It has no answer; the text says why, and what to do.
        """
        tools = {tool.name: tool.input_schema for tool in await self.list_tools()}
        if name not in tools:
            raise ToolError(_no_tool(name, tools))
        takes: dict[str, Any] = tools[name].get("properties", {})
        odd = [given for given in arguments if given not in takes]
        if odd:
            raise ToolError(f"`{name}` takes no {', '.join(odd)}: it takes {', '.join(takes)}.")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(_wrong(name, error.__cause__, takes, tools)) from None
            raise


def _no_tool(name: str, tools: Mapping[str, Any]) -> str:
    """What to call in the place of a tool that is not there."""
    if name in _ALLOWED_BY:
        return (
            f"`{name}` is no tool here: the user allows it by starting"
            f" `probing mcp {_ALLOWED_BY[name]}`."
        )
    if name in _TOOLS:
        return f"`{name}` is no tool: `{_TOOLS[name]}` does it."
    if name in tools["look"]["properties"]["what"].get("enum", ()):
        return f"`{name}` is no tool: `look` with what={name} does it."
    return f"`{name}` is no tool: there are {', '.join(tools)}."


def _wrong(
    tool: str, error: ValidationError, takes: Mapping[str, Any], tools: Mapping[str, Any]
) -> str:
    """What to give in the place of what was given."""
    said: dict[str, str] = {}
    for fault in error.errors():
        name = str(fault["loc"][0]) if fault["loc"] else ""
        schema = takes.get(name, {})
        given = "is missing" if fault["type"] == "missing" else f"is {_shown(fault['input'])}"
        said[name] = f"{name} {given}, and has to be {_kind(schema)}"
        if "description" in schema:
            said[name] += f" ({schema['description'].rstrip('.')})"
        if "enum" in schema and fault["input"] in tuple(tools):
            said[name] += f" (`{fault['input']}` is a tool of its own)"
    return f"`{tool}` was not called: {'; '.join(said.values())}."


def _shown(value: object) -> str:
    """What was given, or the beginning of it."""
    text = json.dumps(value, default=str)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _kind(schema: Mapping[str, Any]) -> str:
    """What a parameter takes."""
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if schema.get("type") == "array":
        return "a list of texts"
    kind = _KINDS.get(schema.get("type", ""), "a text")
    least, over = schema.get("minimum"), schema.get("exclusiveMinimum")
    bounds = [f"from {least:,}"] if least is not None else []
    bounds += [f"over {over:,}"] if over is not None else []
    bounds += [f"up to {schema['maximum']:,}"] if "maximum" in schema else []
    return " ".join([kind, *bounds])
