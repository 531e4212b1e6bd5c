"""Where the agent's socket, folder or port is taken: it refuses or falls back, and says which."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from probing.errors import UnsafeRunDirectory
from probing.rundir import RunDirectory, default_path
from probing.settings import Settings
from probing.transport import Address, ask
from tests.faults import Reached
from tests.harness.targets import Target, clean_env, program_path, start_program

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
        cwd=tmp_path, env=clean_env(tmp_path / "home"), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    told, state = done.stdout.splitlines()
    fault.holds(f"{kind}: told", said, told, is_kept=said in told)
    fault.equals(f"{kind}: what was there", left, state)
    fault.equals(f"{kind}: a file it leads to", "precious", precious.read_text())


def test_a_directory_that_is_not_ours(fault: Reached, tmp_path: Path) -> None:
    """A run directory open to others, a link or a file is refused by agent and command alike."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    (tmp_path / "file").write_text("")
    for name, reason in (("open", "mode is 777"), ("link", "not a directory"), ("file", "not a d")):
        with pytest.raises((UnsafeRunDirectory, OSError)) as caught:
            RunDirectory(tmp_path / name).create_folder(1, 1)
        told = str(caught.value)
        fault.holds(f"{name}: the agent", reason, told, is_kept=reason in told)
    target = Target([sys.executable, "-c", ""], tmp_path / "open", tmp_path)
    target.process.wait()
    done = target.run("list")
    fault.equals("open: the command's exit code", 4, done.returncode)
    assert "its mode is 777" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path / "open") == []


def test_a_machine_without_shared_memory(fault: Reached, tmp_path: Path) -> None:
    """Where there is no /dev/shm the run directory is in /tmp, for agent and command alike."""
    for there, expected in ((tmp_path, str(tmp_path)), (tmp_path / "none", "/tmp")):
        got = default_path(Settings(), runtime_dir=None, uid=7, memory_dir=str(there))
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
    ask(Address(path=target.folder.socket), "ping", timeout_s=10)


def test_a_long_path_is_no_obstacle(tmp_path: Path, fault: Reached) -> None:
    """A run directory deeper than a socket address may be long works all the same."""
    home = tmp_path / ("d" * 100) / ("e" * 100)
    target = start_program("idle", home=home, cwd=tmp_path, PROBING="all")
    try:
        target.wait_for_agent()
        length = len(str(target.folder.socket))
        answer = ask(Address(path=target.folder.socket), "status", timeout_s=10)
        is_kept = length > 200 and bool(answer)
        fault.holds("a path of over 107 bytes", "served", f"served at {length}", is_kept=is_kept)
    finally:
        target.reap()
