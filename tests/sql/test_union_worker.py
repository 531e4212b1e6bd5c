"""The process in which a node server has the rows of its ranks meet: what it may hold."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from probing.errors import SqlTooLarge
from probing.linux import limited_memory
from probing.messages import common as wire
from probing.messages.about.union import UnionRequest
from probing.server.sql_worker.courtesy import FAR
from tests.harness.sql_fixtures import recorded_folder
from tests.harness.targets import DEADLINE_S, ROOT, wait_until

pytestmark = pytest.mark.anypython

SET_MIB = 128
"""Of which the worker may hold four times."""
ONCE = "FROM (SELECT count(*) FROM python.steps)"
BOMBS = {
    "a long text": f"SELECT length(repeat('x', 1800000000)) AS n {ONCE}",
    "a wide format": f"SELECT format('{{:>2000000000}}', 5) AS s {ONCE}",
    "a long list": f"SELECT list_sum(range(200000000)) AS s {ONCE}",
}
PEAK = (
    "import os, subprocess, sys\n"
    "done = subprocess.Popen([sys.executable, '-m', 'probing.cluster.union.node_worker'])\n"
    "_, status, usage = os.wait4(done.pid, 0)\n"
    "print(usage.ru_maxrss, file=sys.stderr)\n"
    "os._exit(os.waitstatus_to_exitcode(status) % 256)\n"
)


ENDLESS = (
    "SELECT sum(hash(many.range)) FROM range(100000000000000) AS many,"
    " (SELECT count(*) FROM python.steps)"
)


def request_of(sql: str) -> bytes:
    """What a worker is asked."""
    request = UnionRequest(
        members=(), table="python.steps", columns=("step",), sql=sql, timeout_s=DEADLINE_S,
        max_bytes=1 << 20,
    )  # fmt: skip
    return wire.encode(request)


def env_of(tmp_path: Path) -> dict[str, str]:
    """The environment of a worker with one record to read."""
    recorded_folder(tmp_path)
    return {
        **os.environ,
        **limited_memory.ENVIRONMENT,
        "PYTHONPATH": str(ROOT),
        "PROBING": "0",
        "PROBING_HOME": str(tmp_path),
        "PROBING_QUERY_MEMORY_MIB": str(SET_MIB),
    }


def ask(tmp_path: Path, sql: str) -> tuple[int, bytes, int]:
    """The exit code and the answer of a worker, and the most that it held, in KiB."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK],
        input=request_of(sql),
        capture_output=True,
        env=env_of(tmp_path),
        timeout=DEADLINE_S,
    )
    return done.returncode, done.stdout, int(done.stderr.split()[-1])


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_is_set_is_what_it_holds(tmp_path: Path, bomb: str) -> None:
    """A statement that wants 2 GB has four times what one query may have, and ends with that."""
    code, answer, held_kib = ask(tmp_path, BOMBS[bomb])
    assert held_kib < 4 * SET_MIB << 10
    if code == 1:
        assert wire.decode_error(answer).code == SqlTooLarge.code
    else:  # it was ended by what could not be had
        assert code not in {0, 2}


def test_what_is_long_stands_far_behind(tmp_path: Path) -> None:
    """A statement that goes on has its threads far behind whatever trains on the machine."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "probing.cluster.union.node_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=env_of(tmp_path),
    )

    def is_far() -> bool:
        tasks = os.listdir(f"/proc/{worker.pid}/task")
        for task in tasks:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                if os.getpriority(os.PRIO_PROCESS, int(task)) == FAR:
                    return True
        return False

    try:
        assert worker.stdin is not None
        worker.stdin.write(request_of(ENDLESS))
        worker.stdin.close()
        wait_until(is_far, "far behind")
    finally:
        worker.kill()
        worker.wait()


def test_an_honest_statement_has_room(tmp_path: Path) -> None:
    """The limit leaves room for libraries and rows."""
    code, answer, _ = ask(tmp_path, "SELECT count(*) AS n FROM python.steps")
    assert code == 0, answer[:400]
