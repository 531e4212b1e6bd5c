"""Ctrl-C while node servers are waited for, with the rows of their ranks."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from probing.cluster.job.interruption import interruptible
from probing.cluster.job.membership import Member
from probing.cluster.job.parallel import _Work
from probing.cluster.union.query import Union
from probing.messages.rank_paths import endpoint_at
from tests.harness.targets import DEADLINE_S, wait_until

pytestmark = pytest.mark.anypython

SQL = "SELECT rank, count(*) AS n FROM python.steps GROUP BY rank"


class _Silent:
    """A node server that takes a question and does not answer: Ctrl-C comes as that is waited for.

    Attributes:
        has_left: To be set by who asked, once that has gone on.
        was_in_time: Whether that was long before the answer.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.has_left = threading.Event()
        self.was_in_time = False
        self._listener = listener

    def serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            wait_until(_is_waited, "a wait for the answer")
            os.kill(os.getpid(), signal.SIGINT)
            self.was_in_time = self.has_left.wait(DEADLINE_S)

    def members(self) -> tuple[Member, ...]:
        """Two ranks behind it."""
        return tuple(
            Member(
                rank=rank, host="h", pid=rank + 7, world_size=2, via=self.address,
                endpoint=endpoint_at(f"http://{self.address}", f"{rank + 7}-1"),
            )
            for rank in range(2)
        )  # fmt: skip


def _is_waited() -> bool:
    """Whether the main thread is in the midst of waiting for answers."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    return (threading.Condition.wait.__code__, _Work.wait.__code__) in itertools.pairwise(codes)


@contextmanager
def _silent() -> Iterator[_Silent]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        node = _Silent(listener)
        thread = threading.Thread(target=node.serve)
        thread.start()
        try:
            yield node
        finally:
            node.has_left.set()
            thread.join(DEADLINE_S)


def test_ctrl_c_waits_for_no_node_server() -> None:
    """Who asked leaves while it computes on."""
    with _silent() as node:
        with pytest.raises(KeyboardInterrupt):
            Union(node.members()).query(SQL, timeout_s=8 * DEADLINE_S)
        node.has_left.set()
    assert node.was_in_time


def test_what_had_come_at_ctrl_c_is_the_answer() -> None:
    """Where a part is one: without the ranks of a node server that has not answered by then."""
    with _silent() as node:
        with interruptible() as cut:
            answer = Union(node.members()).query(SQL, timeout_s=8 * DEADLINE_S)
        node.has_left.set()
        assert answer.to_arrow().num_rows == 0
    assert cut.happened
    assert node.was_in_time
    assert [outcome.state for outcome in answer.outcomes] == ["late", "late"]
    assert node.address in str(answer.outcomes[1].error)
