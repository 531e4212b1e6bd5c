"""The parent of a SQL worker: it is no child of the training, ends the worker, and tells its end.

Rules of this file: it is started by its path, as ``python -IS sql_worker_parent.py TRAINING THREAD
STAYS WORD ...``, by that thread of the training, with the worker's pipes and a socket as the last
of the three. It says there its own number and the worker's, and how the worker ended. A byte from
there ends the worker, and so does the end of the training or of that thread, as by an exec. It is
there as long as the worker and stands before the first answer: it imports next to nothing.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # that of `typing` would have to be loaded
if TYPE_CHECKING:
    from collections.abc import Callable

STAYS, LEAVES = "stays", "leaves"
_WORKER = "sql_worker_main.py"
_LOOK_MS, _LOOK_OFTEN_MS = 1000, 100
"""How often the thread is looked after, and where the kernel does not say when a process ends."""


def main(training: int, thread: int, stays: str, words: list[str]) -> int:
    """Start the worker and wait for its end."""
    said, nothing = os.dup(2), os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 2)  # what the interpreter may print is not for the training
    started = _started(training, thread)
    is_late = started is None and _started(training, training) is not None
    if is_late or os.getppid() != training:  # it has ended, or the thread has
        return 1
    if stays != STAYS and _fork(said):
        os._exit(0)
    own = os.getpid()
    worker = _fork(said)
    if worker == 0:
        _become_worker(str(own), words)
    for pipe in (0, 1):  # they are the worker's
        os.dup2(nothing, pipe)
    os.write(said, b"%d %d\n" % (own, worker))
    code = _wait(worker, said, training, lambda: _started(training, thread) == started)
    os.write(said, b"%d\n" % code)
    os._exit(0)


def _fork(said: int) -> int:
    """Fork, or tell why there is no room for one more process, and end."""
    try:
        return os.fork()
    except OSError as error:
        os.write(said, f"{error}\n".encode())
        os._exit(1)


def _become_worker(parent: str, words: list[str]) -> None:
    try:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), _WORKER)
        os.execv(sys.executable, [sys.executable, "-I", script, parent, *words])  # noqa: S606
    finally:
        os._exit(127)


def _wait(worker: int, said: int, training: int, is_there: Callable[[], bool]) -> int:
    """How the worker has ended, after it was made to where nobody needs it any more."""
    import select
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, no end of a child would be told
    poll, look_ms = select.poll(), _LOOK_MS
    poll.register(said, select.POLLIN)
    over = {said}
    try:
        over.add(os.pidfd_open(training))
        poll.register(max(over), select.POLLIN)
        poll.register(os.pidfd_open(worker), select.POLLIN)
    except (OSError, AttributeError):  # of an older kernel, or built on one
        look_ms = _LOOK_OFTEN_MS
    while True:
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        happened = {fd for fd, _ in poll.poll(look_ms)}
        if happened & over or not is_there():
            os.kill(worker, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def _started(process: int, thread: int) -> bytes | None:
    """When a thread began, as the kernel counts it; None where there is none, or it is hidden."""
    try:
        with open(f"/proc/{process}/task/{thread}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in b"ZX" else fields[19]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
