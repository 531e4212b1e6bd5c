"""What is left of questions as the interpreter of who asked them ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.harness.targets import DEADLINE_S, ROOT

pytestmark = pytest.mark.anypython

LEFT_BEHIND = """
    import threading, time
    import duckdb
    from probing.cluster.job.parallel import run_at_once

    inside = threading.Event()

    def look():
        connection, until = duckdb.connect(), time.monotonic() + 0.5
        while time.monotonic() < until:
            connection.execute("SELECT sum(n) FROM range(20000) AS t(n)").fetchall()
            inside.set()

    print(run_at_once([look], timeout_s=0.01, at_once=1))
    inside.wait()
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
    began = time.monotonic()
    import atexit
    from probing.safety import side_threads
    atexit._run_exitfuncs()
    print(time.monotonic() - began < side_threads.LONGEST_S)
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [(LEFT_BEHIND, "[None]\n"), (SLOW, "[None]\nno more\nTrue\n")],
    ids=["many short statements", "a long one"],
)
def test_what_was_left_behind_ends_first(program: str, printed: str) -> None:
    """A question that was given up is in DuckDB as the program ends: it ends with 0, and soon."""
    argv = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")
