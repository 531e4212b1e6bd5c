"""The clients of a long run: every kind of question, again and again.

Rules of this file: clients are threads that use what the package offers; a question that fails is
kept with its error, and the others go on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import probing
from probing.client.base import Process
from probing.errors import ProbingError
from probing.ring.reader import read_ring
from tests.harness.targets import Target

_WARM_UP = 20
_IN_USE = """
import ctypes as _ctypes, gc as _gc, sys as _sys

class _Info(_ctypes.Structure):
    _fields_ = [(name, _ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]

def _in_use():
    _gc.collect()
    library = _ctypes.CDLL(None)
    library.mallinfo2.restype = _Info
    info = library.mallinfo2()
    return info.uordblks + info.hblkhd, _sys.getallocatedblocks()

print(*_in_use())
"""
"""What the C library has handed out, in bytes (mallinfo2), and Python, in blocks."""
_HALF_A_REQUEST = b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"


class Kind(NamedTuple):
    """One kind of question, and how many seconds lie between two of them."""

    name: str
    period_s: float
    ask: Callable[[Process], object]


def _sql(process: Process) -> object:
    query = "SELECT module, stage, avg(duration) FROM python.torch_trace GROUP BY ALL"
    return process.query(query).to_pylist()


def _bad_sql(process: Process) -> object:
    try:
        return process.query("SELECT no_such_column FROM python.steps")
    except ProbingError:
        return None


KINDS = (
    Kind("status", 1.0, lambda process: process.status()),
    Kind("sql", 10.0, _sql),
    Kind("bad sql", 15.0, _bad_sql),
    Kind("eval", 5.0, lambda process: process.eval("print(optimizer.param_groups[0]['lr'])")),
    Kind("failing eval", 15.0, lambda process: process.eval("1 / 0")),
    Kind("backtrace", 5.0, lambda process: process.backtrace()),
    Kind("live table", 10.0, lambda process: process.live("modules", wait_s=10.0)),
    Kind("memory", 20.0, lambda process: process.live("tensors", wait_s=10.0)),
    Kind("tables", 5.0, lambda process: process.tables()),
    Kind("setting", 10.0, lambda process: process.set("query_timeout_s", "30")),
)


class Questions:
    """Clients that ask a training.

    Attributes:
        target: The training.
        failures: What was answered by an error.
        slowest_s: How long the slowest answer took.
    """

    def __init__(self, target: Target) -> None:
        os.environ["PROBING_HOME"] = str(target.home)
        self.target = target
        self.failures: list[str] = []
        self.slowest_s = 0.0
        self._asked: Counter[str] = Counter()
        self._over = threading.Event()

    @property
    def is_whole(self) -> bool:
        """Whether every kind was asked."""
        return set(self._asked) == {kind.name for kind in KINDS} | {"hung up"}

    def counts(self) -> str:
        """How often what was asked."""
        return ", ".join(f"{count:,} {name}" for name, count in sorted(self._asked.items()))

    def raise_if_broken(self) -> None:
        """Fail at once where the training has ended."""
        code = self.target.process.poll()
        assert code is None, f"the training ended with {code}: {self.target.output}"

    def warm_up(self) -> None:
        """Ask everything some times, as fast as it is answered: what is loaded once is loaded."""
        process = probing.connect(self.target.pid)
        for _ in range(_WARM_UP):
            for kind in KINDS:
                self._ask_once(kind, process)

    def in_use(self) -> tuple[int, int]:
        """Bytes that are allocated in the training, and blocks of Python's own allocator."""
        size, blocks = probing.connect(self.target.pid).eval(_IN_USE).output.split()
        return int(size), int(blocks)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Have them ask meanwhile."""
        threads = [threading.Thread(target=self._ask, args=(kind,)) for kind in KINDS]
        threads.append(threading.Thread(target=self._hang_up))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _ask(self, kind: Kind) -> None:
        process = probing.connect(self.target.pid)
        while not self._over.wait(kind.period_s):
            self._ask_once(kind, process)

    def _ask_once(self, kind: Kind, process: Process) -> None:
        began = time.monotonic()
        try:
            kind.ask(process)
        except ProbingError as error:
            self.failures.append(f"{kind.name}: {error}")
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self._asked[kind.name] += 1

    def _hang_up(self) -> None:
        """Clients that go in the middle of a request."""
        path = str(self.target.folder.socket)
        while not self._over.wait(2.0):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                client.sendall(_HALF_A_REQUEST)
            self._asked["hung up"] += 1


def damaged(target: Target) -> list[str]:
    """The tables with rows that are missing between others, torn or dropped.

    The training must have stopped; a row that it was just writing does not count.
    """
    found = []
    for ring in sorted(target.folder.path.glob("*.ring")):
        snapshot = read_ring(ring, columns=())
        numbers = snapshot.rows.numbers
        gaps = int((numbers[1:] - numbers[:-1] != 1).sum())
        if gaps or snapshot.torn > 1 or snapshot.dropped:
            found.append(f"{ring.stem}: {gaps} gaps, {snapshot.torn} torn, {snapshot.dropped} lost")
    return found
