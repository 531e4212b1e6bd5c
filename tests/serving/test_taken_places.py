"""Where the agent's socket, folder or port is taken: it refuses or falls back, and says which."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing.errors import UnsafeRunDirectory
from probing.reach.address import Address
from probing.reach.transport import ask
from probing.rundir.folders import RunDirectory
from probing.rundir.places import choose
from probing.settings import Settings
from tests.faults import Reached
from tests.harness.targets import (
    DEADLINE_S,
    Target,
    clean_env,
    program_path,
    start_program,
    wait_until,
)

pytestmark = [pytest.mark.anypython, pytest.mark.fault("N1")]

NO_SOCKET = "something that is no socket of ours is there"


@pytest.mark.parametrize(
    ("kind", "said", "left"),
    [
        ("file", NO_SOCKET, "kept"),
        ("link", NO_SOCKET, "kept"),
        ("directory", NO_SOCKET, "kept"),
        ("folder", "its mode is 777, not 700", "kept"),
        ("stale", "started", "replaced"),
    ],
)
def test_what_is_in_the_sockets_place(
    kind: str, said: str, left: str, fault: Reached, tmp_path: Path
) -> None:
    """Only a socket that this user's agent left is removed; all else stays, and is told."""
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    done = subprocess.run(
        [sys.executable, str(program_path("taken_place")), kind],
        cwd=tmp_path, env=clean_env(tmp_path / "home"), capture_output=True, text=True,
        timeout=DEADLINE_S,
    )  # fmt: skip
    told, state = done.stdout.splitlines()
    fault.holds(f"{kind}: told", said, told, is_kept=said in told)
    fault.equals(f"{kind}: what was there", left, state)
    fault.equals(f"{kind}: a file it leads to", "precious", precious.read_text())


def test_a_directory_that_is_not_ours(fault: Reached, tmp_path: Path) -> None:
    """A run directory open to others, a link or a file gets nothing, nor is it looked into."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    (tmp_path / "file").write_text("")
    for name, reason in (("open", "mode is 777"), ("link", "not a directory"), ("file", "not a d")):
        with pytest.raises((UnsafeRunDirectory, OSError)) as caught:
            RunDirectory(tmp_path / name).create_folder(1, 1)
        told = str(caught.value)
        fault.holds(f"{name}: the agent", reason, told, is_kept=reason in told)
        chosen = choose(Settings(home=str(tmp_path / name)), runtime_dir=str(tmp_path))
        fault.equals(f"{name}: taken instead", tmp_path / "probing", chosen.path)
        assert reason in chosen.passed[0][1]
    assert os.listdir(tmp_path / "open") == []


@pytest.fixture
def passed_over(tmp_path: Path) -> Iterator[Target]:
    """An idle process with the agent, whose run directory its user has made as one makes any."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (tmp_path / "runtime").mkdir(mode=0o700)
    target = start_program(
        "idle", home=home, cwd=tmp_path, PROBING="all", XDG_RUNTIME_DIR=str(tmp_path / "runtime")
    )
    target.env["XDG_RUNTIME_DIR"] = str(tmp_path / "runtime")
    target.wait_for_output("ready")
    yield target
    target.reap()


def test_a_directory_made_by_hand_is_passed_over_and_told(
    passed_over: Target, tmp_path: Path, fault: Reached
) -> None:
    """One line on stderr says where the record is and what has it where it was asked for."""
    home, runtime = tmp_path / "home", tmp_path / "runtime" / "probing"
    (line,) = (text for text in passed_over.output.splitlines() if text != "ready")
    (folder,) = wait_until(lambda: RunDirectory(runtime).folders(), "a folder")
    told = (
        f"probing: the record is in {folder.path}, not in PROBING_HOME, {home}: its mode is 755,"
        f" not 700; `chmod 700 {home}` has the next start use it"
    )
    fault.equals("mode 755: the training's stderr", told, line)
    assert os.listdir(home) == []
    listed = passed_over.run("list", "--format", "json")
    (found,) = json.loads(listed.stdout)
    fault.equals("mode 755: listed", passed_over.pid, found["pid"])
    assert f"{home} is no run directory: its mode is 755, not 700" in listed.stderr
    home.chmod(0o700)
    done = passed_over.run(str(passed_over.pid), "eval", "6 * 7")
    fault.equals("after what was advised: still found", "42\n", done.stdout)


def test_what_keeps_the_agent_out_is_told(tmp_path: Path) -> None:
    """One line on stderr, and none where it would have to be waited for."""
    argv = [sys.executable, "-c", "import sys; print('goes on')"]
    env = clean_env(tmp_path / "home", PROBING="all", PROBING_OVERHEAD="much")
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout == "goes on\n"
    assert done.stderr.startswith("probing: the agent did not start: setting PROBING_OVERHEAD: ")
    assert len(done.stderr.splitlines()) == 1
    reading, writing = os.pipe2(os.O_NONBLOCK)
    try:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * 4096)
        os.set_blocking(writing, True)
        done = subprocess.run(
            argv, env=env, stdout=-1, stderr=writing, text=True, timeout=DEADLINE_S
        )
        assert done.stdout == "goes on\n"
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("mode", "uid", "advice"),
    [(0o755, None, "chmod 700"), (0o700, 4242, "PROBING_HOME should name a folder")],
)
def test_what_is_advised_can_be_done(
    mode: int, uid: int | None, advice: str, tmp_path: Path
) -> None:
    """Who has made it himself changes its mode; who has not takes another one."""
    (tmp_path / "home").mkdir(mode=mode)
    if uid is not None:
        if os.getuid() != 0:
            pytest.skip("only root gives a folder away")
        os.chown(tmp_path / "home", uid, -1)
    with pytest.raises(UnsafeRunDirectory) as caught:
        RunDirectory(tmp_path / "home").verify()
    assert advice in caught.value.help


def test_a_machine_without_shared_memory(fault: Reached, tmp_path: Path) -> None:
    """Where there is no /dev/shm the run directory is in /tmp, for agent and command alike."""
    for there, expected in ((tmp_path, str(tmp_path)), (tmp_path / "none", "/tmp")):
        got = choose(Settings(), runtime_dir=None, uid=7, memory_dir=str(there)).path
        fault.equals(f"/dev/shm is there: {there.exists()}", f"{expected}/probing-7", str(got))


@pytest.mark.parametrize(
    ("listen", "told"),
    [
        ("0.0.0.0:0", "without encryption"),
        ("nonsense", "is not host:port"),
        ("127.0.0.1:{taken}", "Address already in use"),
    ],
)
def test_a_listener_that_cannot_be_is_told(
    listen: str, told: str, program: Callable[..., Target], fault: Reached
) -> None:
    """An open address without leave, or a taken port: no TCP, the reason on the card."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        target = program("idle", PROBING="all", PROBING_LISTEN=listen.format(taken=port))
        target.wait_for_agent()
    card = target.folder.read_card()
    assert card is not None
    assert card.listen is None
    said = card.problems[0]
    fault.holds(listen.replace("{taken}", "a taken port"), told, said, is_kept=told in said)
    ask(Address(path=target.folder.socket), "ping", timeout_s=DEADLINE_S)


def test_a_long_path_is_no_obstacle(tmp_path: Path, fault: Reached) -> None:
    """A run directory deeper than a socket address may be long works all the same."""
    home = tmp_path / ("d" * 100) / ("e" * 100)
    target = start_program("idle", home=home, cwd=tmp_path, PROBING="all")
    try:
        target.wait_for_agent()
        length = len(str(target.folder.socket))
        answer = ask(Address(path=target.folder.socket), "status", timeout_s=DEADLINE_S)
        is_kept = length > 200 and bool(answer)
        fault.holds("a path of over 107 bytes", "served", f"served at {length}", is_kept=is_kept)
    finally:
        target.reap()
