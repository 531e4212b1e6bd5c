"""The tools: what an agent can ask, and, where the user allows it, change.

Rules of this file: few tools, each one sentence of when to use it; a tool is a command, and its
answer is the command's. The names of parameters are words of the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from .asking import ask, run

Endpoint = Annotated[
    str,
    Field(
        coerce_numbers_to_str=True,  # a pid is a number to many an agent
        description="Whom to ask: a pid, host:port, rank:3, job:NAME, job:NAME/rank:3, all, or the"
        " run folder of a process that has ended; several are separated by blanks.",
    ),
]
Timeout = Annotated[float, Field(gt=0, le=600, description="How long to look, in seconds.")]
Look = Literal[
    "overview", "dataloaders", "stragglers", "gradients", "summary", "leak", "oom", "profile",
    "status", "jobs",
]  # fmt: skip


async def list_targets(
    *,
    all_python: Annotated[
        bool, Field(description="Also Python processes without an agent, which can be attached to.")
    ] = False,
    ended: Annotated[bool, Field(description="Also processes that have ended.")] = False,
) -> str:
    """Which trainings there are: pid, rank, state, step and its age. Begin here without a pid."""
    words = ["--all"] * all_python + ["--dead"] * ended
    return await run("list", *words, timeout_s=30.0)


async def doctor(endpoint: Endpoint, timeout_s: Timeout = 60.0) -> str:
    """What is wrong, how sure, on what evidence, what to ask next and how to mend it.

    The first tool for every symptom: a hang, slow steps, NaN, a loss that does not fall, memory
    that grows, a crash. Looks up to `timeout_s`; works on live, hung and ended processes.
    """
    return await ask(endpoint, "doctor", timeout_s=timeout_s)


async def hang(endpoint: Endpoint, timeout_s: Timeout = 60.0) -> str:
    """Why it does not go on: the rank, thread and line to blame, and what the rest waits for."""
    return await ask(endpoint, "hang", timeout_s=timeout_s)


async def stacks(
    endpoint: Endpoint,
    *,
    variables: Annotated[bool, Field(description="Also the local variables.")] = False,
    timeout_s: Timeout = 30.0,
) -> str:
    """Where every thread is, and what it waits for (`probing ENDPOINT backtrace`)."""
    return await ask(endpoint, "backtrace", *["--locals"] * variables, timeout_s=timeout_s)


async def steps(
    endpoint: Endpoint,
    last: Annotated[
        int, Field(ge=1, le=1000, description="How many of the last steps of each.")
    ] = 20,
    timeout_s: Timeout = 30.0,
) -> str:
    """The last steps of each rank: loss, rate, gradient norm, seconds, their phases, memory."""
    sql = _STEPS.format(last=last)
    return await ask(endpoint, "query", "--format", "csv", "--", sql, timeout_s=timeout_s)


async def query(
    endpoint: Endpoint,
    sql: Annotated[
        str,
        Field(
            description="One DuckDB statement that reads, or a saved question such as"
            " @slowest-modules. `describe_tables` has the tables."
        ),
    ],
    limit: Annotated[int, Field(ge=1, le=5000, description="The most rows.")] = 200,
    timeout_s: Timeout = 30.0,
) -> str:
    """Ask the record by SQL, as CSV: every module call, step, batch, collective, sample of it."""
    words = ("query", "--format", "csv", "--limit", str(limit), "--", _typed(sql))
    return await ask(endpoint, *words, timeout_s=timeout_s)


async def describe_tables(
    endpoint: Endpoint,
    table: Annotated[str, Field(description="One table, for its columns; empty for all.")] = "",
) -> str:
    """The tables that `query` can ask, or the columns of one, with units and meaning."""
    words = ["tables", "--limit", "0", *(["--", table] if table else [])]
    return await ask(endpoint, *words, timeout_s=30.0)


async def memory(endpoint: Endpoint, timeout_s: Timeout = 30.0) -> str:
    """Where memory is: weights, gradients, optimizer, activations, and the largest tensors.

    Holds the training for some milliseconds to list its tensors, and says for how long.
    """
    return await ask(endpoint, "memory", timeout_s=timeout_s)


async def look(endpoint: Endpoint, what: Look, timeout_s: Timeout = 60.0) -> str:
    """One more command that only looks, as `next` of an answer names it: `probing PID dataloaders`.

    `leak` watches and `profile` profiles some steps, at a cost that they tell.
    """
    return await ask(endpoint, what, timeout_s=timeout_s)


async def history(
    folder: Annotated[str, Field(description="The folder that `probing export` has written to.")],
    sql: Annotated[
        str, Field(description="A statement over all runs in it; empty to list the runs.")
    ] = "",
    timeout_s: Timeout = 60.0,
) -> str:
    """Runs that were kept, also after they have ended: list them, or ask all of them by SQL."""
    words = ["query", "--format", "csv", "--limit", "500"] if sql else ["runs"]
    return await run(
        "history", *words, "--", folder, *([_typed(sql)] if sql else []), timeout_s=timeout_s
    )


async def evaluate(
    endpoint: Endpoint,
    code: Annotated[str, Field(description="Python, run between two steps in the training.")],
    timeout_s: Timeout = 30.0,
) -> str:
    """Run Python in the training, which is held meanwhile; it is on record in python.evals."""
    return await ask(endpoint, "eval", "--", code, timeout_s=timeout_s)


async def act(
    endpoint: Endpoint,
    action: Annotated[
        list[str],
        Field(
            description="The words behind `probing ENDPOINT act`: ['lr', '--scale', '0.5'],"
            " ['clip', '1.0'], ['checkpoint', '/new/file'], ['list'], ['undo', '3']."
        ),
    ],
    timeout_s: Timeout = 60.0,
) -> str:
    """Change the training between two steps; answers what was changed.

    Rates, clips, guards and left-out layers can be undone; a checkpoint and a cleanup cannot. No
    file that is there is written over.
    """
    odd = [word for word in action if not _is_of_action(word)]
    if odd:
        text = f"An agent may not use {' '.join(odd)}: files and other targets are for the user."
        raise ToolError(text)
    return await ask(endpoint, "act", *action, timeout_s=timeout_s)


def _is_of_action(word: str) -> bool:
    """Whether a word is no option, or one that says only what is to be changed, and how."""
    return not word.startswith("-") or word.partition("=")[0] in ACT_OPTIONS


def _typed(sql: str) -> str:
    """SQL that the command line takes for no name of a file, which it would read."""
    return sql if sql.startswith("@") else f"{sql}\n"


ACT_OPTIONS = frozenset(
    (
        *("--scale", "--hold", "--optimizer", "--async", "--consecutive", "--in", "--model"),
        *("--except", "--alone", "--limit", "-n", "--format", "--json"),
    )
)
"""All options of `act` but those that write over a file, or have another one asked."""
_STEPS = (
    "SELECT rank, pid, step, round(duration, 4) AS duration, loss, grad_norm, lr, samples,"
    " round(tokens_per_s) AS tokens_per_s, round(COLUMNS(['data_wait_s', 'to_device_s',"
    " 'forward_s', 'loss_s', 'backward_s', 'gradient_sync_s', 'gradients_s', 'optimizer_s',"
    " 'other_s', 'device_s']), 4), round(allocated, 1) AS allocated_mib, failed"
    " FROM python.steps QUALIFY row_number() OVER (PARTITION BY rank, host, pid"
    " ORDER BY seq DESC) <= {last} ORDER BY step DESC, rank"
)
_READING: tuple[Callable[..., Any], ...] = (
    list_targets, doctor, hang, stacks, steps, query, describe_tables, memory, look, history,
)  # fmt: skip
_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


def add_tools(server: MCPServer[Any], *, allow_eval: bool, allow_act: bool) -> None:
    """Give a server the tools that its user allows."""
    for tool in _READING:
        server.add_tool(tool, annotations=_READS, structured_output=False)
    if allow_eval:
        server.add_tool(evaluate, name="eval", annotations=_CHANGES, structured_output=False)
    if allow_act:
        server.add_tool(act, annotations=_CHANGES, structured_output=False)
