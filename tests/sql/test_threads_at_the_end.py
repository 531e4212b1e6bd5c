"""Threads of who asks: what is left of them as the interpreter ends, and where there are none."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from probing.linux.limited_memory import ENVIRONMENT
from tests.harness.targets import DEADLINE_S, ROOT

pytestmark = pytest.mark.anypython

LEFT_BEHIND = """
    import threading, time
    import duckdb
    from probing.cluster.job.parallel import run_at_once
    from probing.safety import side_threads

    side_threads.LONGEST_S = 120.0
    inside, given_up = threading.Event(), threading.Event()

    def look():
        connection, until = duckdb.connect(), None
        while until is None or time.monotonic() < until:
            connection.execute("SELECT sum(n) FROM range(20000) AS t(n)").fetchall()
            inside.set()
            if until is None and given_up.is_set():
                until = time.monotonic() + 0.5

    print(run_at_once([look], timeout_s=0.01, at_once=1))
    inside.wait()
    given_up.set()
"""
SLOW = """
    import threading, time
    from probing.errors import QueryTimedOut
    from probing.sql.engine import Engine
    from probing.cluster.job.parallel import run_at_once

    def look():
        try:
            Engine([]).run("SELECT count(*) FROM range(10000000000)", timeout_s=60)
        finally:
            try:
                Engine([]).run("SELECT 1", timeout_s=60)
            except QueryTimedOut:
                print("no more")

    print(run_at_once([look], timeout_s=0.5, at_once=1))
    import atexit
    from probing.safety import side_threads
    side_threads.LONGEST_S = 120.0
    atexit._run_exitfuncs()
    print(not any(thread.is_alive() for thread in side_threads._open))
"""
NONE_TO_BE_HAD = """
    import resource, threading
    from probing.cli.output.waiting import Waiting
    from probing.errors.querying import told_of
    from probing.safety.side_threads import start_aside

    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    threading.stack_size(1 << 40)
    waiting = Waiting(lambda _: None, lambda: None)
    waiting.start()
    waiting.stop()
    try:
        start_aside(print, name="x")
    except RuntimeError as error:
        print(told_of(error).message)
        kept = error  # with its frames, as one that ends a program
"""
SHIELDED = """
    import sys
    from probing.cli.ask.shield import LeftToChild, go_on_in_a_child

    try:
        go_on_in_a_child()
    except LeftToChild as left:
        sys.exit(left.exit_code)
"""
HELPER = """
    from probing.linux.limited_memory import limit_memory

    limit_memory(512)
"""
THREADS = """
    import threading

    done = threading.Event()
    for _ in range(4):
        threading.Thread(target=done.wait, daemon=True).start()
    done.set()
    import numpy  # which starts threads of its own
    print("all there")
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [(LEFT_BEHIND, "[None]\n"), (SLOW, "[None]\nno more\nTrue\n")],
    ids=["many short statements", "a long one"],
)
def test_what_was_left_behind_ends_first(program: str, printed: str) -> None:
    """A question that was given up is in DuckDB as the program ends: it ends with 0, and soon."""
    assert ended(program) == (0, printed, "")


def ended(program: str, *before: str) -> tuple[int, str, str]:
    """How a program ends, and what it prints."""
    argv = [*before, sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        env={**os.environ, **ENVIRONMENT, "OPENBLAS_NUM_THREADS": "4"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_thread_that_cannot_be_started_is_a_sentence() -> None:
    """Nobody waits for it at the end, and a command goes on without its sign of life."""
    said = "probing itself could not start a thread (can't start new thread).\n"
    assert ended(NONE_TO_BE_HAD) == (0, said, "")


@pytest.mark.parametrize("limits", [SHIELDED, HELPER], ids=["a command", "a helper"])
def test_large_stacks_leave_room_for_threads(limits: str) -> None:
    """Who asks for SQL has threads under its limit of memory, whatever `ulimit -s` says."""
    large = ("sh", "-c", 'ulimit -s 4194304 && exec "$@"', "sh")
    assert ended(limits + THREADS, *large) == (0, "all there\n", "")
