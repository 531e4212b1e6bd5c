"""What the training survives: its agent's own death, and its own, whichever way it comes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import probing
from probing.ring.reader import read_ring
from probing.rundir.folders import short_path
from tests.faults import Reached
from tests.harness.targets import DEADLINE_S, Target, clean_env, program_path, wait_until


@pytest.mark.anypython
@pytest.mark.fault("T9")
def test_a_killed_loop_is_restarted_and_then_off(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch, fault: Reached
) -> None:
    """Two deaths are survived, the third refuses clients at once; the program notices nothing."""
    target = program("killed_loop", PROBING="all")
    target.wait_for_output("ready")
    target.wait_for_agent()
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    for death in (1, 2):
        kill_loop(target, death)
        fault.equals(f"after death {death}: settings", "answered", asked(job))
    kill_loop(target, 3)
    with pytest.raises(probing.ProbingError) as lost:
        asked(job)
    said = type(lost.value).__name__  # it dies with the request in hand, or before it is there
    ends = ("ConnectionLost", "NotProbed")
    fault.holds("death 3: settings", " or ".join(ends), said, is_kept=said in ends)
    wait_until(lambda: "it is off" in str(target.folder.read_card()), "the end of the server")
    with pytest.raises(probing.ProbingError) as refused:
        asked(job)
    fault.equals("after death 3: settings", "NotProbed", type(refused.value).__name__)
    card = target.folder.read_card()
    assert card is not None
    expected = ["the server failed: SystemExit"] * 2 + ["the server failed: SystemExit; it is off"]
    fault.equals("after death 3: on the card", expected, list(card.problems))
    fault.equals("after death 3: SQL", [{"x": 1}], job.query("SELECT 1 AS x").to_pylist())
    fault.equals("the program printed", "ready\n" + "injected\n" * 3, target.output)
    fault.equals("the program runs", None, target.process.poll())


@pytest.mark.anypython
@pytest.mark.fault("T9")
def test_a_killed_loop_is_silent_about_connections_that_it_held(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch, fault: Reached
) -> None:
    """Clients that keep a connection lose it without a word to the program."""
    target = program("killed_loop", PROBING="all", PYTHONDEVMODE="1")
    target.wait_for_output("ready")
    target.wait_for_agent()
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    with contextlib.ExitStack() as clients:
        for death in (1, 2):
            assert asked(job) == "answered"
            held = [clients.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(4)]
            for client in held:
                client.settimeout(DEADLINE_S)
                with short_path(target.folder.socket) as path:
                    client.connect(path)
                client.sendall(b"GET /v1/ping HTTP/1.1\r\nHost: x\r\n\r\n")
                assert client.recv(9) == b"HTTP/1.1 "
            kill_loop(target, death)  # it wakes to look whether its clients get on
            wait_for_their_end(held)
    printed = "ready\n" + "injected\n" * 2
    fault.equals("with connections open, the program printed", printed, target.output)


def wait_for_their_end(connections: list[socket.socket]) -> None:
    """Read until the other side has closed them all."""
    for connection in connections:
        with contextlib.suppress(ConnectionError):
            while connection.recv(4096):
                pass


def kill_loop(target: Target, death: int) -> None:
    """Raise SystemExit in the agent's thread, where it comes once it is asked next."""
    os.kill(target.pid, signal.SIGUSR1)
    wait_until(lambda: target.output.count("injected") == death, "the injection")


def asked(job: probing.Process) -> str:
    """Have the agent answer something that only it knows."""
    return "answered" if job.settings() else "nothing"


@pytest.mark.anypython
@pytest.mark.fault("T1")
@pytest.mark.parametrize("rounds", [10, pytest.param(500, marks=pytest.mark.nightly)])
def test_sigkill_at_any_moment_costs_the_row_in_the_making(
    rounds: int, tmp_path: Path, fault: Reached
) -> None:
    """A writer killed anywhere leaves its ring full of whole rows, but for one at most."""
    moments = random.Random(7)
    worst = 0
    for number in range(rounds):
        path = tmp_path / f"{number}.ring"
        argv = [sys.executable, str(program_path("write_ring")), str(path), "500", "0"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(moments.uniform(0, 0.02))  # the moment is the fault itself
            process.kill()
        found = read_ring(path)
        assert found.written == len(found.rows) + found.overwritten + found.torn
        worst = max(worst, found.torn)
    fault.at_most(f"{rounds} kills: rows that cannot be read", 1, worst, "rows")


OWN_DEATHS = ("segfault", "abort", "os._exit", "SIGTERM", "exception", "exec")
"""Those that come at a moment the process itself knows; SIGKILL is also the OOM killer's."""
_COMMITTED = """
SELECT 'figures' AS kind, value::BIGINT AS number FROM python.metrics WHERE value IS NOT NULL
UNION ALL
SELECT 'calls', step + 1 FROM python.torch_trace WHERE stage = 'forward' AND duration IS NOT NULL
ORDER BY ALL"""
_HELD = {"figures": 64, "calls": 32}
"""How many the rings of `tests/programs/dying.py` hold; a call is a row of its own and a step's."""


@pytest.mark.torch
@pytest.mark.fault("T1")
@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.nightly)])
def test_sql_of_a_dead_process_has_what_it_had_committed(
    kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Reached
) -> None:
    """Whatever it died of, every row of which it had told that it is written is in the answer."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path))
    wanted = [word for way in OWN_DEATHS for word in (way, "1")] + ["sigkill", str(kills)]
    done = subprocess.run(
        [sys.executable, str(program_path("dying")), *wanted],
        env=clean_env(tmp_path, PROBING="0", PROBING_KEEP_MIB="16384"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S + kills,
    )
    deaths = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(deaths) == len(OWN_DEATHS) + kills, done.stderr
    wrong, took_s = [], []
    for death in deaths:
        began = time.process_time()
        rows = probing.connect(death["pid"]).query(_COMMITTED).to_pylist()
        took_s.append(time.process_time() - began)
        for kind, held in _HELD.items():
            numbers = [row["number"] for row in rows if row["kind"] == kind]
            how = difference(numbers, death["told"], held, in_making=death["way"] == "sigkill")
            wrong += [f"{death}: {kind}: {how}"] if how else []
        if death["way"] != "sigkill":
            told = dict.fromkeys(_HELD, death["told"])
            fault.equals(f"{death['way']}: the newest in SQL", told,
                         {row["kind"]: row["number"] for row in rows})  # fmt: skip
    fault.equals(f"{kills} kills, rows told through a pipe: not so in SQL", [], wrong)
    fault.at_most("SQL of a dead process: processor time", 1.0, sorted(took_s)[kills // 2], "s")


def difference(numbers: list[int], told: int, held: int, *, in_making: bool) -> str:
    """What is wrong with the rows that were found, if the process had told of so many.

    Args:
        held: How many the ring holds.
        in_making: Whether one more may be there, or be in the making in the place of the oldest.
    """
    newest = numbers[-1] if numbers else 0
    if not told <= newest <= told + in_making:
        return f"{told} were told, the newest is {newest}"
    if numbers != list(range(newest - len(numbers) + 1, newest + 1)):
        return f"not all of {numbers[0]} to {newest}"
    least = min(newest, held) - in_making
    return "" if least <= len(numbers) <= held else f"{len(numbers)} instead of {least}"
