"""Tasks of an executor fail and are asked for in every way, or in none; all is as without us."""

from __future__ import annotations

import gc
import os
import threading
import time
import traceback
import weakref
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from typing import Any

import torch

import probing


class Failure(OSError):
    """One that can be referred to weakly."""


class Own(Future[Any]):
    """A future that is asked in its own way."""

    def result(self, timeout: float | None = None) -> Any:
        return super().result(timeout)


def fail(name: str, begin: threading.Event | None = None) -> None:
    if begin is not None:
        begin.wait()
    raise Failure(name)


def failed(name: str) -> Future[None]:
    """The future of a task that has failed, while nobody waited."""
    future = pool.submit(fail, name)
    wait([future])
    return future


def begin_when_awaited(future: Any, begin: threading.Event) -> None:
    """Have a task begin once somebody waits for its result."""
    while not future._condition._waiters:
        time.sleep(0.001)
    begin.set()


def settled() -> None:
    """The worker has let go of all tasks but this one."""
    pool.submit(int).result()


if __name__ == "__main__":
    pool = ThreadPoolExecutor(1)
    plain = Future.set_exception
    probing.start()
    failed("lost")
    gc.disable()
    try:
        failed("result").result()
    except Failure as error:
        told = error.args, traceback.extract_tb(error.__traceback__)[-1].name
        gone = weakref.ref(error)
    assert told == (("result",), "fail")
    settled()
    assert gone() is None  # nothing in a circle holds it
    gc.enable()
    assert repr(failed("exception").exception(timeout=1)) == "Failure('exception')"
    begin = threading.Event()
    seen: list[object] = []
    future = pool.submit(fail, "callback", begin)
    future.add_done_callback(lambda done: seen.append(done.exception()))
    begin.set()
    wait([future])
    begin = threading.Event()
    future = pool.submit(fail, "waited", begin)
    threading.Thread(target=begin_when_awaited, args=(future, begin)).start()
    seen.append(future.exception())
    kept = failed("kept")
    own: Future[None] = Own()
    own.set_exception(Failure("own"))
    try:
        kept.set_exception(Failure("again"))
    except InvalidStateError:
        seen.append(None)
    settled()
    assert len(seen) == 3
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(2)).sum().backward()
    optimizer.step()
    assert {"result", "exception"} <= vars(kept).keys()
    probing.stop()
    assert not {"result", "exception"} & vars(kept).keys()
    assert repr(kept.exception()) == "Failure('kept')"
    assert Future.set_exception is plain
    rows = "SELECT error, function, line, lost FROM python.task_errors ORDER BY seq"
    for row in probing.connect(os.getpid()).query(rows).to_pylist():
        place = row["line"].partition(":")[0]
        print(row["error"], row["function"], place, row["lost"], sep="|", flush=True)
    print("done", flush=True)
