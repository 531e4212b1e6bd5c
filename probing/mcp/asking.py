"""Runs commands, and puts what they answer so that nobody takes it for instructions.

Rules of this file: a command runs as a process of its own, so that one that hangs or dies costs one
answer. An answer has a most; what is cut says so. What a training says (names, exceptions, values)
stands between two marks that it cannot know beforehand. The user's token goes to no stranger.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence

import anyio
from mcp.server.mcpserver.exceptions import ToolError

from ..safety.off_switch import without_agent
from .strangers import VARIABLE, WITHOUT_TOKEN, is_stranger

MOST_CHARS = 24_000
_MOST_OF_LINE = 1_000
"""What an answer may have: more would fill the context of who reads it."""
_GRACE_S = 20.0
"""How long a command may take beyond its own limit, to start and to say that it is over."""


async def ask(endpoint: str, *words: str, timeout_s: float) -> str:
    """What a command answers about a process or several.

    Args:
        endpoint: What the command line takes as one; several are separated by blanks.
        words: The command, its options and arguments.
        timeout_s: How long it may look.

    Raises:
        ToolError: It has no answer; the text says why, and what to do.
    """
    targets = endpoint.split()
    if not targets:
        raise ToolError("No endpoint is given. `list_targets` shows which there are.")
    for target in targets:
        if target.startswith("@"):
            text = (
                f"{target} is a file of hosts, which no tool reads: name the hosts, as host:port."
            )
            raise ToolError(text)
    named = [word for target in targets for word in ("--target", target)]
    strangers = [target for target in targets if is_stranger(target, os.environ)]
    return await run(*named, *words, timeout_s=timeout_s, strangers=strangers)


async def run(*words: str, timeout_s: float, strangers: Sequence[str] = ()) -> str:
    """What a command answers, fenced; see `ask`.

    Args:
        strangers: Those of whom it asks that nobody but an agent has named.
    """
    options = ["--timeout", f"{timeout_s:g}", *(WITHOUT_TOKEN if strangers else ())]
    argv = [sys.executable, "-m", "probing", *options, *words]
    env = without_agent(os.environ) | {"COLUMNS": "160"}
    if strangers:
        env.pop(VARIABLE, None)
    try:
        with anyio.fail_after(timeout_s + _GRACE_S):
            done = await anyio.run_process(argv, stdin=subprocess.DEVNULL, check=False, env=env)
    except TimeoutError:
        text = f"`probing {' '.join(words)}` did not end within {timeout_s + _GRACE_S:g} s."
        raise ToolError(text) from None
    answer = done.stdout.decode("utf-8", "replace").strip()
    notes = done.stderr.decode("utf-8", "replace").strip()
    ending = _ending(done.returncode, strangers)
    if not answer and done.returncode:
        raise ToolError("\n".join([_fenced(notes), *ending]))
    parts = [_fenced(_cut(answer or "Nothing."))]
    parts += [f"Notes:\n{_fenced(_cut(notes))}"] if notes else []
    return "\n".join([*parts, *ending])


def _ending(code: int, strangers: Sequence[str]) -> list[str]:
    """How a command has failed, and what it was not given."""
    if not code:
        return []
    told = [
        f"(The user's token was not sent, since nobody but you has named {' '.join(strangers)}. The"
        " user can name it: in [endpoints] of the settings file, or its certificate, by"
        " PROBING_TLS_CA or PROBING_TLS_FINGERPRINT.)"
    ]
    return [f"(exit code {code})", *(told if strangers else [])]


def _fenced(text: str) -> str:
    """A text between marks that nothing within it can end."""
    mark = secrets.token_hex(4)
    return f"<data {mark}>\n{text}\n</data {mark}>"


def _cut(text: str) -> str:
    """A text, or its first part and how much is missing; a long line does not take all the room."""
    if len(text) <= MOST_CHARS:
        return text
    short = "\n".join(map(_cut_line, text.split("\n")))
    if len(short) <= MOST_CHARS:
        return short
    kept = short[:MOST_CHARS].rpartition("\n")[0] or short[:MOST_CHARS]
    missing = len(text) - len(kept)
    return f"{kept}\n[cut: {missing:,} of {len(text):,} characters are missing; ask for less]"


def _cut_line(line: str) -> str:
    """A line, or its beginning and how much of it is missing."""
    missing = len(line) - _MOST_OF_LINE
    if missing <= 0:
        return line
    return f"{line[:_MOST_OF_LINE]} [cut: {missing:,} characters of this line are missing]"
