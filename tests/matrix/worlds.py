"""The rows of processes that have ended, or that are in another world than the one that asks.

Rules of this file: as `rows`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

from .cells import (
    ATTACH,
    BACKTRACE,
    EVAL,
    LATER_EVAL,
    LATER_QUERY,
    QUERY,
    QUERY_FRAMES,
    STRANGE_BACKTRACE,
    UNSAFE,
    Cell,
    Row,
)

_NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    # Python itself may lie where only root can read; the right to read files is not that to trace.
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
)
_ROOT_WITHOUT_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace")
_CONTAINER = ("unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child")
OUTSIDE = "taken by py-spy from outside"


def attached(*, query: str = '"n":0') -> tuple[Cell, ...]:
    """Attaching works, and everything else from then on."""
    return (
        Cell(
            question=ATTACH,
            shows="yes",
            says=("the agent is in process {pid} \\(by |{pid} has an agent already",),
        ),
        Cell(question=LATER_QUERY, shows="yes", says=(query,)),
        Cell(question=LATER_EVAL, shows="yes", says=("^42$",)),
    )


def _ended(
    name: str, title: str, program: str, arguments: Iterable[str], backtrace: Cell, **more: object
) -> Row:
    """A process that has ended; without an agent, nothing is left of it."""
    gone = ("there is no process {pid}, and no record of one",)
    frames = Cell(
        question=QUERY_FRAMES,
        shows=backtrace.shows,
        code=backtrace.code,
        says=(backtrace.says[-1],),
    )
    return Row(
        name=name,
        title=title,
        program=program,
        arguments=tuple(arguments),
        states=frozenset(),
        cells=(
            Cell(question=STRANGE_BACKTRACE, shows="no: gone", code=3, says=gone),
            Cell(question=ATTACH, shows="no: gone", code=3, says=gone),
            backtrace,
            Cell(
                question=QUERY,
                shows="yes",
                says=('"n":2' if more.get("needs_torch") else '"n":0',),
            ),
            frames,
            Cell(question=EVAL, shows="no: ended", code=3, says=("process {pid} has ended",)),
            Cell(question=UNSAFE, shows="no: ended", code=3, says=("process {pid} has ended",)),
        ),
        **more,  # type: ignore[arg-type]
    )


DEAD = (
    _ended(
        "killed",
        "killed: kill -9, OOM killer",
        "hung",
        ["forward"],
        Cell(
            question=BACKTRACE,
            shows="open rows",
            says=("these are the module calls that had not returned", "Stuck"),
        ),
        ends_by=signal.SIGKILL,
        needs_torch=True,
        is_slow=True,
    ),
    _ended(
        "killed_bare",
        "killed, with nothing recorded",
        "stuck",
        ["sleep"],
        Cell(question=BACKTRACE, shows="no: no record", code=3, says=("no stack any more",)),
        ends_by=signal.SIGKILL,
    ),
    _ended(
        "segfault",
        "ended by a segfault",
        "crashes",
        ["segv"],
        Cell(question=BACKTRACE, shows="at the crash", says=("SIGSEGV", "segv")),
        exit_code=-signal.SIGSEGV,
    ),
)

WORLDS = (
    Row(
        name="other_user",
        title="another user's",
        arguments=("sleep",),
        asker=_NOBODY,
        needs_root=True,
        cells=(
            Cell(
                question=STRANGE_BACKTRACE,
                shows="kernel only",
                says=("sleeping", "process {pid} belongs to user 0", "sudo -u '#0' probing"),
            ),
            Cell(question=ATTACH, shows="refused: sudo", code=4, says=("sudo -u '#0' probing",)),
        ),
    ),
    Row(
        name="no_ptrace",
        title="root without SYS_PTRACE",
        arguments=("sleep",),
        asker=_ROOT_WITHOUT_PTRACE,
        needs_root=True,
        cells=(
            Cell(
                question=STRANGE_BACKTRACE,
                shows="kernel only",
                says=("sleeping", "root lacks the capability SYS_PTRACE", "--cap-add SYS_PTRACE"),
            ),
            Cell(question=ATTACH, shows="refused: cap", code=4, says=("--cap-add SYS_PTRACE",)),
            Cell(
                question=BACKTRACE,
                shows="yes",
                says=("taken by the agent", r"\bin sleep$"),
            ),
            Cell(question=QUERY, shows="yes", says=('"n":0',)),
            Cell(question=QUERY_FRAMES, shows="yes", says=('"func":"sleep"',)),
            Cell(question=EVAL, shows="yes", says=("^42$",)),
            Cell(question=UNSAFE, shows="refused: cap", code=4, says=("--cap-add SYS_PTRACE",)),
        ),
    ),
    Row(
        name="undumpable",
        title="has forbidden it itself",
        arguments=("undumpable",),
        prefix=_NOBODY,
        asker=_NOBODY,
        needs_root=True,
        cells=(
            Cell(
                question=STRANGE_BACKTRACE,
                shows="kernel only",
                says=("sleeping", "does not let itself be looked into", "sudo probing"),
            ),
            Cell(question=ATTACH, shows="refused: sudo", code=4, says=("PR_SET_DUMPABLE", "sudo")),
        ),
    ),
    Row(
        name="container",
        title="in a container",
        arguments=("sleep",),
        prefix=_CONTAINER,
        needs_root=True,
        cells=(
            Cell(
                question=STRANGE_BACKTRACE,
                shows="yes",
                says=(OUTSIDE, r"\bin sleep$", ": sleeping$"),
            ),
            Cell(
                question=ATTACH,
                shows="refused: nsenter",
                code=4,
                says=("nsenter --target {pid} --mount --pid -- probing attach 1",),
            ),
        ),
    ),
    Row(
        name="not_python",
        title="not Python",
        program="/bin/sleep",
        arguments=("600",),
        cells=(
            Cell(
                question=STRANGE_BACKTRACE,
                shows="no: not Python",
                code=3,
                says=("it is not a Python process",),
            ),
            Cell(question=ATTACH, shows="refused", code=4, says=("it is not a Python process",)),
        ),
    ),
    Row(
        name="sub_interpreter",
        title="with a sub-interpreter",
        program="sub_interpreter",
        cells=(
            Cell(
                question=STRANGE_BACKTRACE,
                shows="one of them",
                says=(OUTSIDE, r"\bin wait_in_sub_interpreter$", "another interpreter"),
            ),
            *attached(),
            Cell(
                question=BACKTRACE,
                shows="yes",
                says=(r"\bin wait_here$",),
            ),
            Cell(question=QUERY, shows="yes", says=('"n":0',)),
            Cell(question=QUERY_FRAMES, shows="yes", says=('"func":"wait_here"',)),
            Cell(question=EVAL, shows="yes", says=("^42$",)),
        ),
    ),
    Row(
        name="training",
        title="healthy training",
        program="train_gpt",
        needs_torch=True,
        is_slow=True,
        cells=(
            Cell(
                question=STRANGE_BACKTRACE,
                shows="yes",
                says=(OUTSIDE, "train_gpt.py"),
            ),
            *attached(query='"n":[1-9]'),
        ),
    ),
)
