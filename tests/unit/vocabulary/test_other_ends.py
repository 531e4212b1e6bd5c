"""Who has the other end of what a thread reads from, as the kernel tells it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from probing.diagnosis.hang.seen.other_ends import read_from, writers
from probing.diagnosis.hang.seen.others import NOBODY_SENDS, senders_to
from tests.harness.targets import DEADLINE_S, wait_until

pytestmark = pytest.mark.anypython


def ends_of(kind: str) -> tuple[int, int]:
    """One to read from, and the other one."""
    if kind == "pipe":
        return os.pipe()
    one, other = socket.socketpair()
    return one.detach(), other.detach()


@pytest.fixture(params=["pipe", "socket"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Who reads from one end, and the other end, which it has, too, as after a fork."""
    end, other = ends_of(request.param)
    reader = subprocess.Popen(["cat"], stdin=end, stdout=subprocess.DEVNULL, pass_fds=[end, other])
    os.close(end)
    yield reader, other
    os.close(other)
    reader.kill()
    reader.wait()


def test_who_can_send_is_found_until_it_has_gone(
    pair: tuple[subprocess.Popen[bytes], int], request: pytest.FixtureRequest
) -> None:
    """Neither who reads nor who asks is told; none where nobody is left."""
    reader, other = pair
    found = wait_until(lambda: read_from(reader.pid, reader.pid), "it reads")
    assert found.startswith(request.node.callspec.params["pair"])
    with subprocess.Popen(["sleep", "600"], stdout=other) as sender:
        assert wait_until(lambda: writers(found, but=reader.pid), "it has it") == [sender.pid]
        sender.kill()
    assert writers(found, but=reader.pid) == []


def test_what_who_can_send_does_is_told(
    pair: tuple[subprocess.Popen[bytes], int], request: pytest.FixtureRequest
) -> None:
    """With what people call it; where nobody can, that is told."""
    (reader, other), kind = pair, request.node.callspec.params["pair"]
    wait_until(lambda: read_from(reader.pid, reader.pid), "it reads")
    with subprocess.Popen(["sleep", "600"], stdout=other) as sender:
        says = f"process {sender.pid} (sleep 600), at the other end of its {kind}, is sleeping"
        wait_until(lambda: [says] == _said(reader.pid), "it sleeps")
        sender.kill()
    assert _said(reader.pid) == [f"{NOBODY_SENDS} {kind}"]


def _said(pid: int) -> list[str]:
    return [sender.words for sender in senders_to(pid, pid, within_s=DEADLINE_S)]


def test_who_only_reads_the_same_pipe_sends_nothing(
    pair: tuple[subprocess.Popen[bytes], int], request: pytest.FixtureRequest
) -> None:
    """Workers that take from one queue all have the end that is read."""
    reader, _ = pair
    if request.node.callspec.params["pair"] == "socket":
        return  # no two ends of a socket bear the same number
    found = wait_until(lambda: read_from(reader.pid, reader.pid), "it reads")
    with open(f"/proc/{reader.pid}/fd/0", "rb") as end, subprocess.Popen(["cat"], stdin=end) as one:
        assert writers(found, but=reader.pid) == []
        one.kill()


def test_what_is_no_such_end_is_not_told() -> None:
    """A sleep reads from nothing; a file and a socket without another end have none."""
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        assert read_from(sleeper.pid, sleeper.pid) is None
        sleeper.kill()
    assert writers("/tmp/x", but=1) is None
    with socket.socket() as alone:
        number = os.fstat(alone.fileno()).st_ino
        assert writers(f"socket:[{number}]", but=1) is None
