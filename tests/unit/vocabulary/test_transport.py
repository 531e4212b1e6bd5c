"""What a client keeps of a connection whose other end does not keep to the protocol."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probing.client.connecting import connect
from probing.client.long_questions import ask_and_watch
from probing.errors import ConnectionLost, NotAnswering, NotProbing
from probing.messages.about.act import Cleanup
from probing.messages.common import ProfileRequest, SettingsAnswer, SettingValue
from probing.reach.address import Address
from probing.reach.transport import Answering, open_answer
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython

_HALF = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n\r\nhalf"


@pytest.fixture
def half_answering(tmp_path: Path) -> Iterator[Address]:
    """Who begins an answer, and says no more until the test is over."""
    with socket.socket(socket.AF_UNIX) as server:
        path = tmp_path / "sock"
        server.bind(str(path))
        server.listen()
        is_over = threading.Event()

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(_HALF)
                is_over.wait()

        serving = threading.Thread(target=serve)
        serving.start()
        yield Address(path=path)
        is_over.set()
        serving.join()


def test_half_an_answer_keeps_no_socket(half_answering: Address) -> None:
    """The answer is closed with the connection, whoever still holds it and its error."""
    held: list[Answering] = []

    def read() -> None:
        with open_answer(half_answering, "status", timeout_s=DEADLINE_S) as answer:
            held.append(answer)
            answer._patience._limit_s = 0.2  # only now, when its beginning is there
            answer._patience.begin()
            answer.read(1000)

    with pytest.raises(NotAnswering) as late:
        read()
    assert held[0].response.isclosed()
    assert late.value.exit_code


def test_who_leaves_a_long_question_takes_it_along(tmp_path: Path) -> None:
    """Ctrl-C of the caller ends the connection, by which the agent knows that nobody waits."""
    arrived, has_left = threading.Event(), threading.Event()

    def interrupt(_: float) -> None:
        arrived.wait()
        raise KeyboardInterrupt

    with socket.socket(socket.AF_UNIX) as server:
        path = tmp_path / "sock"
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.settimeout(DEADLINE_S)
                while connection.recv(1 << 16):
                    arrived.set()
                has_left.set()

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(KeyboardInterrupt):
            ask_and_watch(
                Address(path=path),
                "profile",
                ProfileRequest(steps=1, timeout_s=1),
                timeout_s=DEADLINE_S,
                silence_s=DEADLINE_S,
                progress=interrupt,
            )
        serving.join()
    assert has_left.is_set()


@pytest.mark.parametrize(
    ("own_s", "asked_s", "waits_s"), [("120.0", None, 120.0), ("10.0", None, 30.0), ("120.0", 1, 1)]
)
def test_code_is_waited_for_as_long_as_its_process_lets_it_run(
    own_s: str, asked_s: float | None, waits_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own setting where nobody says how long; else by what was said."""
    process = connect("127.0.0.1:1", timeout_s=30.0)
    waited_s: list[float] = []
    own = SettingValue(name="eval_timeout_s", env="", value=own_s, source="set", live=True, doc="")

    def post(*_: Any, timeout_s: float, grace_s: float, **__: Any) -> None:
        waited_s.append(timeout_s + grace_s)

    monkeypatch.setattr(process, "_get", lambda *_: SettingsAnswer(settings=(own,)))
    monkeypatch.setattr(process, "_post", post)
    process.eval("1", timeout_s=asked_s)
    assert waits_s < waited_s[0] <= waits_s + 30.0, "and a grace"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX], ids=["tcp", "unix"])
@pytest.mark.parametrize("stays", [True, False], ids=["stays", "leaves"])
def test_who_closes_a_connection_and_leaves_is_told_from_who_stays(
    family: socket.AddressFamily, tmp_path: Path, *, stays: bool
) -> None:
    """That the server may want TLS is said only of one that listens on, at an address of TCP.

    Of what was sent nobody knows whether it was done, and that is said, too.
    """
    with socket.socket(family) as server:
        path = tmp_path / "sock"
        server.bind(("127.0.0.1", 0) if family == socket.AF_INET else str(path))
        server.listen()
        is_over = threading.Event()

        def serve() -> None:
            server.settimeout(0.01)
            while not is_over.is_set():
                with contextlib.suppress(TimeoutError):
                    connection, _ = server.accept()
                    connection.settimeout(DEADLINE_S)
                    with connection:
                        connection.recv(1 << 16)
                    if not stays:
                        server.close()
                        path.unlink(missing_ok=True)
                        return

        serving = threading.Thread(target=serve)
        serving.start()
        own = server.getsockname()
        address = f"127.0.0.1:{own[1]}" if family == socket.AF_INET else str(path)
        with pytest.raises(ConnectionLost if stays else NotProbing) as lost:
            connect(address).act(Cleanup())
        is_over.set()
        serving.join()
    assert ("TLS" in lost.value.help) == (stays and family == socket.AF_INET)
    assert ("listens no more" in lost.value.message) == (not stays)
    assert lost.value.help.startswith("The action may have been applied: `probing ENDPOINT query ")
