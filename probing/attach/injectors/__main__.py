"""The helper process that touches the other one: ``python -m probing.attach.injectors ORDER``.

Rules of this file: a process of its own, because the kernel lets a tracer's threads go when it
ends, however it ends, and because ptrace belongs to one thread. Signals from the terminal wait, so
that whoever asked is told what came of it; a borrowed thread finds its way back without us.
ORDER and the answer are one JSON object each.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

from ...linux import process
from ...linux.other_user import acting_as
from ...rundir.attach_order import AttachFiles, Note
from ...rundir.folders import folder_at
from .borrowing.memory import find_interpreter
from .holder import run_in_holder
from .methods import inject
from .refusal import CannotInject

_HELD_BACK = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE),
    signal.SIGCHLD,  # is waited for: it tells that a thread has stopped
)


def main(text: str) -> None:
    """Carry out one order and print what came of it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    order = json.loads(text)
    if "thread_id" in order:
        answer = {"reason": _run_in_holder(order["pid"], order["code"], order["thread_id"])}
    else:
        outcome = inject(
            order["pid"],
            order["script"],
            how=order["how"],
            patience_s=order["patience_s"],
            tell=partial(_note, order["pid"], Path(order["script"]).parent),
        )
        answer = dict(outcome._asdict())
    print(json.dumps(answer))  # noqa: T201 - to the process that started this one


def _note(pid: int, path: Path, method: str) -> None:
    """Leave word that the script is injected, for whoever comes after us."""
    folder = folder_at(path)
    user = process.user(pid)
    if folder is not None:
        with (
            contextlib.suppress(OSError),
            acting_as(None if user is None or user.uid == os.getuid() else user),
        ):
            AttachFiles(folder).write_note(Note(injector=os.getpid(), method=method))


def _run_in_holder(pid: int, code: str, thread_id: int) -> str | None:
    """Run code in the thread that holds the interpreter lock; returns why not."""
    try:
        with contextlib.closing(find_interpreter(pid)) as interpreter:
            run_in_holder(interpreter, code, thread_id=thread_id)
    except CannotInject as error:
        return error.reason
    return None


if __name__ == "__main__":
    main(sys.argv[1])
