"""Runs code in a process that can run none: in the very thread that holds the interpreter lock.

Rules of this file: only when asked for by name, never as a fallback; see
`probing.attach.injectors.holder` for what can go wrong. Works with and without an agent in the
process.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from pathlib import Path
from typing import Any

from ..errors import AttachFailed, EvalTimedOut, ProcessEnded
from ..linux import process
from ..linux.foreign_files import read_file
from ..linux.other_user import acting_as
from ..messages.common import EvalResult
from ..rundir.folders import ProcessFolder, RunDirectory, directory_of, write_private
from ..stacks import py_spy
from .attach import ask_helper, written_as_its_user
from .injectors.injected.script import evaluation_text, injected_code
from .preflight import find_obstacle

_MAX_CHARS = 1 << 20
_MOST_BYTES = 32 << 20
"""Of the result: a character may take twelve in JSON."""


def eval_in_holder(pid: int, code: str, *, limit_s: float) -> EvalResult:
    """Run code in the thread that holds the interpreter lock of a process.

    Args:
        limit_s: When code that still runs is ended at its next line. A call into C that does not
            come back is waited for, because the thread cannot be taken from it.

    Raises:
        AttachFailed: No thread holds the lock, or its holder cannot be borrowed.
        AttachRefused, NoPermission, NoSuchProcess: As for `probing.attach.attach.attach`.
        EvalTimedOut: The code was sent and never began.
    """
    obstacle = find_obstacle(pid)
    if obstacle is not None:
        raise obstacle
    holders = [t.thread_id for t in py_spy.take(pid, py_spy.Dump()) if t.holds_gil]
    if not holders:
        raise AttachFailed(
            pid,
            "no thread holds the interpreter lock for long, so code can run there as usual",
            help="Use `eval` without --unsafe.",
        )
    directory = directory_of(pid)
    folder = directory.folder_for(pid, process.start_time(pid) or 0)
    script = folder.path / f"eval-{secrets.token_hex(4)}.py"  # another one may be under way
    result = script.with_name(f"{script.name}.result")
    text = evaluation_text(
        {"script": str(script), "code": code, "limit_s": limit_s, "max_chars": _MAX_CHARS}
    )
    try:
        with written_as_its_user(pid, directory):
            try:
                _write(directory, folder, script, text)
            except FileNotFoundError:  # another one that ended has just taken the folder away
                _write(directory, folder, script, text)
        order = {"pid": pid, "code": injected_code(str(script)), "thread_id": holders[0]}
        reason = ask_helper(order)["reason"]
        if reason:
            raise AttachFailed(pid, str(reason))
        return _result(_read(result, pid), holders[0])
    finally:
        with acting_as(directory.user), contextlib.suppress(OSError):
            script.unlink(missing_ok=True)
            result.unlink(missing_ok=True)
            folder.path.rmdir()  # it stays where an agent has files in it


def _write(directory: RunDirectory, folder: ProcessFolder, script: Path, text: str) -> None:
    directory.create_folder(folder.pid, folder.start_time)
    write_private(script, text.encode("ascii"))


def _read(path: Path, pid: int) -> dict[str, Any]:
    """The result that the process left.

    Raises:
        ProcessEnded: It did not survive.
        EvalTimedOut: There is none.
    """
    try:
        facts: dict[str, Any] = json.loads(read_file(path, _MOST_BYTES))
    except (OSError, ValueError):
        if process.start_time(pid) is None:
            raise ProcessEnded(pid, "the code left no result") from None
        raise EvalTimedOut("the code was sent, but left no result.") from None
    return facts


def _result(facts: dict[str, Any], thread_id: int) -> EvalResult:
    """The result as `eval` gives it."""
    return EvalResult(
        output=facts["output"],
        value=facts["value"],
        error=facts["error"],
        error_type=facts["error_type"],
        omitted_bytes=facts["omitted"],
        duration_s=facts["duration_s"],
        waited_s=0.0,
        where=f"thread {thread_id}, which holds the interpreter lock",
        step=None,
    )
