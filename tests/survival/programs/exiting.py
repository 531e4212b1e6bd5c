"""Exits in the way its argument names, some of them from `leave`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import threading

import probing


def leave(status: object = None) -> None:
    sys.exit(status)  # type: ignore[arg-type]


def caught() -> None:
    """Think better of it."""
    try:
        leave(3)
    except SystemExit:
        print("goes on", flush=True)


def caught_and_raised() -> None:
    """Exit with another code than the one that was thought better of."""
    caught()
    raise SystemExit(4)


def parse() -> None:
    argparse.ArgumentParser(prog="exiting").parse_args(["--unknown"])


def in_thread() -> None:
    """End a thread, and no more than that."""
    thread = threading.Thread(target=leave, args=(3,))
    thread.start()
    thread.join()


def in_child() -> None:
    """Have a child exit that is spawned, and has an agent of its own."""
    child = multiprocessing.get_context("spawn").Process(target=leave, args=(3,))
    child.start()
    child.join()
    print(child.pid, child.exitcode, flush=True)


def traced() -> None:
    """Show what the program sees of the function, with and without us: nothing else."""
    import inspect
    import pickle
    import traceback

    try:
        leave(3)
    except SystemExit as error:
        print(error.code, len(traceback.extract_tb(error.__traceback__)))
    assert pickle.loads(pickle.dumps(sys.exit)) is sys.exit
    print(sys.exit, inspect.signature(sys.exit), sys.exit.__module__, sys.exit.__doc__)
    for wrong in (lambda: sys.exit(1, 2), lambda: sys.exit(status=1)):
        try:
            wrong()
        except TypeError:
            print("refused")


def own_exit() -> None:
    """A function of the program's own in place of Python's."""
    original = sys.exit
    sys.exit = lambda status=None: original(status)
    leave(3)


def raises(status: object) -> None:
    raise SystemExit(status)


WAYS = {
    "code": lambda: leave(3),
    "message": lambda: leave("no data\nat all"),
    "object": lambda: leave([1]),
    "negative": lambda: leave(-1),
    "raised": lambda: raises(4),
    "asked for": lambda: exit(5),  # noqa: PLR1722 - another way to raise it
    "zero": lambda: leave(0),
    "none": lambda: leave(None),
    "nothing": lambda: sys.exit(),  # noqa: PLW0108 - ours by then
    "at its end": lambda: None,
    "at once": lambda: os._exit(3),
    "caught": caught,
    "caught and raised": caught_and_raised,
    "parse": parse,
    "in thread": in_thread,
    "in child": in_child,
    "traced": traced,
    "own": own_exit,
}

if __name__ == "__main__":
    if os.environ.get("AGENT"):
        probing.start()
    WAYS[sys.argv[1]]()
