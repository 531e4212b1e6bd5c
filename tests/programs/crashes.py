"""Ends in the way its arguments name, from inside `culprit`, or goes on without it."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import probing
from probing.ring.native import IN_C


class Crashed(RuntimeError):
    """An exception of the program's own."""


def segv() -> None:
    ctypes.string_at(0)


def abort() -> None:
    os.abort()


def own_sigterm() -> None:
    """A handler of the program's own, which ends it in its own way."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    sigterm()


def own_sigterm_that_goes_on() -> None:
    """A handler of the program's own, which takes its time."""
    signal.signal(signal.SIGTERM, lambda *_: print("own handler", flush=True))


def looked_again() -> None:
    """The agent's thread has done what it does now and then."""
    from probing.agent import lifecycle

    agent = lifecycle.current()
    for chore in agent.chores if agent is not None else ():
        chore()


def ignores_sigterm() -> None:
    """The program does not care."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def own_stacks_at_sigterm() -> None:
    """The program has Python's faulthandler write where it was, and then end."""
    own = os.open("own.txt", os.O_WRONLY | os.O_CREAT, 0o600)
    faulthandler.register(signal.SIGTERM, own, all_threads=False, chain=True)


def sigterm_and_sigkill() -> None:
    """As a scheduler ends a job whose grace period is over."""
    os.kill(os.getpid(), signal.SIGTERM)
    print("goes on", flush=True)
    sigkill()


def sigterm_and_exit() -> None:
    """As a program that gives up."""
    os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(1)


def own_sigterm_that_raises() -> None:
    """A handler of the program's own, as of one that means to be unwound."""
    signal.signal(signal.SIGTERM, lambda *_: exception())


def sigterm_long_before() -> None:
    """A SIGTERM that nobody minded; an hour later something else."""
    os.kill(os.getpid(), signal.SIGTERM)
    (told,) = Path(os.environ["PROBING_HOME"]).glob("*/terminated")
    os.utime(told, (time.time() - 3600,) * 2)
    exception()


def exits_143() -> None:
    sys.exit(143)


def sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(600)


def sigkill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exception() -> None:
    try:
        dict[str, int]()["no such key"]
    except KeyError as error:
        raise Crashed("the program's own words") from error


def interrupt() -> None:
    raise KeyboardInterrupt


def recursion() -> None:
    recursion()


def memory() -> None:
    """Take all the address space there is, in ever smaller pieces, and keep it."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
    for size in (1 << 20, 1 << 16, 1 << 12):
        try:
            while True:
                HOARD.append(bytearray(size))
        except MemoryError:
            if size == 1 << 12:
                raise


HOARD: list[bytearray] = []


def out_of_memory() -> None:
    import torch

    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of"
        " which 1.06 GiB is free."
    )


def unshown() -> None:
    """An exception whose message cannot be made."""

    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError("no message")

    raise Silent


def shown() -> None:
    """An exception that the program shows as Python would, and survives."""
    try:
        exception()
    except Crashed:
        sys.excepthook(*sys.exc_info())


def exits() -> None:
    sys.exit(3)


def returns() -> None:
    pass


def in_thread() -> None:
    """Have a thread named Loader call the culprit; the main thread goes on."""
    thread = threading.Thread(target=culprit, name="Loader")
    thread.start()
    thread.join()
    print("the main thread goes on", flush=True)


def in_fork() -> None:
    """Have a forked child call the culprit; the parent goes on."""
    pid = os.fork()
    if pid == 0:
        culprit()
        os._exit(0)
    print("the child's status is", os.waitpid(pid, 0)[1], flush=True)


def stopped() -> None:
    """Take the agent out before the culprit is called."""
    probing.stop()
    culprit()


def own_hook() -> None:
    """A hook of the program's own, which calls the one before it."""
    before = sys.excepthook

    def hook(kind: Any, value: Any, traceback: Any) -> None:
        print("own hook:", kind.__name__, value, flush=True)
        before(kind, value, traceback)

    sys.excepthook = hook


def own_exit() -> None:
    """A function of the program's own in place of `sys.exit`, which calls the one before it."""
    before = sys.exit
    sys.exit = lambda status=None: before(status)


def own_thread_hook() -> None:
    """A hook for threads of the program's own, which calls nothing else."""
    threading.excepthook = lambda args: print("own thread hook:", args.exc_value, flush=True)


def own_faulthandler() -> None:
    """The program's own faulthandler, with a file of its own."""
    own = os.open("own.txt", os.O_WRONLY | os.O_CREAT, 0o600)
    faulthandler.enable(own)


def own_faulthandler_off() -> None:
    """The program wants no faulthandler."""
    faulthandler.disable()


FATAL = (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)


def hooks_of_process() -> tuple[object, ...]:
    """All that the agent may change in a process to record its crash."""
    status = Path("/proc/self/status").read_text()
    masks = [
        int(line.split()[1], 16) for line in status.splitlines() if line[:4] in {"SigC", "SigI"}
    ]
    caught = [
        bool(mask >> (number - 1) & 1) for mask in masks for number in (*FATAL, signal.SIGTERM)
    ]
    files = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            files.append(os.readlink(entry))
    hooks = sys.excepthook, threading.excepthook, *([sys.exit] if IN_C is not None else [])
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    return *hooks, faulthandler.is_enabled(), caught, sorted(files)


def start_stop() -> None:
    """Start and stop the agent three times, and look at the hooks each time."""
    before = hooks_of_process()
    for _ in range(3):
        probing.start()
        during = hooks_of_process()
        assert all(a != b for a, b in zip(before, during, strict=True)), during
        probing.stop()
        assert hooks_of_process() == before, (before, hooks_of_process())
    print("as before", flush=True)


def detached() -> None:
    """Have the agent say what it has to leave behind, and let it go."""
    from probing.agent import lifecycle

    left = lifecycle.detach(keep_record=True)
    print(*(left.left if left else ()), sep="\n", flush=True)


def own_signal_handler() -> None:
    """A handler of the program's own for a signal that would be fatal."""
    signal.signal(signal.SIGFPE, lambda *_: print("own handler", flush=True))


def ignore_in_c() -> None:
    """A fatal signal is ignored from now on, without Python's knowledge."""
    ctypes.CDLL(None).signal(int(signal.SIGFPE), ctypes.c_void_p(1))


def sigfpe() -> None:
    os.kill(os.getpid(), signal.SIGFPE)
    print("goes on", flush=True)


def culprit() -> None:
    """Nothing else here calls this, so that it is the function to be named."""
    globals()[sys.argv[1]]()


if __name__ == "__main__":
    words = sys.argv[2:]
    for word in words:  # what the program does before the agent comes
        if word.startswith("before:"):
            globals()[word.partition(":")[2]]()
    if os.environ.get("AGENT"):
        probing.start()
    way = culprit
    for word in words:  # and after
        if word.startswith("after:"):
            globals()[word.partition(":")[2]]()
        elif not word.startswith("before:"):
            way = globals()[word]
    way()
