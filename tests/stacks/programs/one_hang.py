"""A process by itself that stands still in the way its argument names; prints `ready` before.

Needs no torch: what it imports by that name is a module that it has written itself.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIFETIME_S = 600
TORCH = "import threading\nprint('ready', flush=True)\nthreading.Event().wait()\n"


def event() -> None:
    """Waits for an event that nobody sets."""
    print("ready", flush=True)
    threading.Event().wait()


def importing() -> None:
    """Is in the import of a torch that does not get on."""
    packages = Path("lib/site-packages").resolve()
    packages.joinpath("torch").mkdir(parents=True)
    packages.joinpath("torch/__init__.py").write_text(TORCH)
    sys.path.insert(0, str(packages))
    import torch  # noqa: F401


def pool(workers: int = 1) -> None:
    """Every worker of a pool waits for a task that is queued behind its own."""
    uploads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="uploads")
    all_run = threading.Barrier(workers + 1)

    def part() -> None: ...

    def whole() -> None:
        all_run.wait()
        uploads.submit(part).result()

    tasks = [uploads.submit(whole) for _ in range(workers)]
    all_run.wait()
    print("ready", flush=True)
    tasks[0].result()


def pool_of_two() -> None:
    """The same of two workers."""
    pool(2)


def busy_pool() -> None:
    """A task waits for another one of its pool, which a worker will come to."""
    uploads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="uploads")
    slow = uploads.submit(threading.Event().wait)
    fast = uploads.submit(lambda: uploads.submit(slow.result).result())
    print("ready", flush=True)
    fast.result()


def handler() -> None:
    """A signal handler takes the lock that the code has which it interrupts."""
    lock = threading.Lock()

    def save(*_: object) -> None:
        with lock:
            pass

    signal.signal(signal.SIGUSR1, save)
    print("ready", flush=True)
    with lock:
        signal.raise_signal(signal.SIGUSR1)


def ending() -> None:
    """Has come to its end, and a thread that is no daemon has not."""

    def upload() -> None:
        threading.Event().wait()

    threading.Thread(target=upload, name="uploader").start()
    print("ready", flush=True)


WAYS: dict[str, Callable[[], None]] = {
    way.__name__: way for way in (event, importing, pool, pool_of_two, busy_pool, handler, ending)
}

if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    WAYS[sys.argv[1]]()
