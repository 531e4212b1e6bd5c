"""What the training thread waits for in its steps: an answer of others, or the GIL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probing.diagnosis.doctor.not_looked_at import NotLookedAt
from probing.diagnosis.doctor.rules.pace.waiting_calls import SENDERS
from tests.unit.doctor.made import facts, signs, steps
from tests.unit.doctor.records import at, line

pytestmark = pytest.mark.anypython

CALL = "loss = model(loss)"
READ = "SocketIO.readinto (/usr/lib/python3.11/socket.py:706)"
CHILD = "Popen._try_wait (/usr/lib/python3.11/subprocess.py:2000)"
QUEUE = ("Queue.get (/usr/lib/python3.11/queue.py:171)",
         "Condition.wait (/usr/lib/python3.11/threading.py:327)")  # fmt: skip
OLD = ("get (/usr/lib/python3.10/queue.py:171)", "wait (/usr/lib/python3.10/threading.py:320)")
FUTURE = ("Future.result (/usr/lib/python3.11/concurrent/futures/_base.py:451)", QUEUE[1])
EVENT = ("Event.wait (/usr/lib/python3.11/threading.py:622)", QUEUE[1])
_MP = "/usr/lib/python3.11/multiprocessing"
RECEIVED = (f"Connection._recv_bytes ({_MP}/connection.py:430)",
            f"Connection._recv ({_MP}/connection.py:395)")  # fmt: skip
PIPE = (f"_ConnectionBase.recv ({_MP}/connection.py:250)", *RECEIVED)
BETWEEN = (f"SimpleQueue.get ({_MP}/queues.py:365)", *RECEIVED)
WITHIN = (f"Queue.get ({_MP}/queues.py:113)", f"_ConnectionBase.poll ({_MP}/connection.py:257)",
          f"Connection._poll ({_MP}/connection.py:440)", f"wait ({_MP}/connection.py:947)",
          "_PollLikeSelector.select (/usr/lib/python3.11/selectors.py:415)")  # fmt: skip
OLD_BETWEEN = tuple(frame.partition(".")[2] for frame in BETWEEN)
LOADER = "_MultiProcessingDataLoaderIter._next_data (/x/site-packages/torch/dataloader.py:9)"


@pytest.mark.parametrize(
    ("below", "other_s", "said"),
    [
        ((READ,), 0.04, "waits for the network"),
        ((CHILD,), 0.04, "waits for another process"),
        (QUEUE, 0.04, "waits for a queue that others fill"),
        (QUEUE[:1], 0.04, "waits for a queue that others fill"),
        (OLD, 0.04, "waits for a queue that others fill"),
        (FUTURE, 0.04, "waits for another thread"),
        (EVENT, 0.04, "waits for another thread"),
        (BETWEEN, 0.04, "waits for a queue that other processes fill"),
        (OLD_BETWEEN, 0.04, "waits for a queue that other processes fill"),
        (WITHIN, 0.04, "waits for a queue that other processes fill"),
        (PIPE, 0.04, "waits for what another process sends"),
        ((LOADER, *WITHIN), 0.04, None),
        (("Client.recv (/x/site-packages/zmq/client.py:9)",), 0.04, "waits for the network"),
        (("get (/job/cache.py:9)",), 0.04, None),  # a look into the script's own cache
        (("Cache.get (/x/site-packages/cachetools/lru.py:9)",), 0.04, None),
        (("Dict.wait_for_nothing (/x/site-packages/a.py:9)",), 0.04, None),
        ((LOADER, *QUEUE), 0.04, None),
        (QUEUE, 0.06, None),
        ((LOADER, READ), 0.04, None),  # data have rules of their own
        ((READ,), 0.01, None),  # it is done in a phase that computes
        ((READ,), 0.06, None),  # more than half of a step: `own-code` has it
        ((), 0.04, None),
    ],
)
def test_a_call_that_waits_for_others(
    below: tuple[str, ...], other_s: float, said: str | None
) -> None:
    """It is possible only, as it may be meant; the line and the share of the samples are told."""
    made = facts({"steps": steps(80, other_s=other_s)}, stacks=[at(CALL, 40, *below), at("", 60)])
    made.ask(SENDERS, lambda: ("its process 8 (python) sleeps",))
    found = signs("waiting-call", made)
    if said is None:
        assert found == []
        return
    (sign,) = found
    assert sign.certainty == "possible"
    assert said in sign.summary
    assert f"records.py:{line(CALL)}" in sign.summary
    assert "40 % of the samples" in sign.summary
    is_of_processes = "process" in said and below != (CHILD,)
    assert ("its process 8 (python) sleeps" in sign.evidence) == is_of_processes


@pytest.mark.parametrize(
    ("below", "said", "fix"),
    [
        (QUEUE, "The training waits for a queue that others fill at ", "more actors, workers"),
        (OLD, "The training waits for a queue that others fill at ", "more actors, workers"),
        (BETWEEN, "The training waits for a queue that other processes fill at ", "more actors"),
        (PIPE, "The training waits for what another process sends at ", "more actors, workers"),
        (FUTURE, "The training waits for another thread at ", "a step ahead"),
        ((READ,), "The training waits for the network at ", ""),
        ((), "60 % of each step is code of the script", ""),  # it computes
        (("Cache.get (/x/site-packages/cachetools/lru.py:9)",), "60 % of each step is code", ""),
        ((LOADER, *QUEUE), "60 % of each step is code", ""),  # an iterator that the script drives
    ],
)
def test_a_learner_that_is_starved_is_told_whom_it_waits_for(
    below: tuple[str, ...], said: str, fix: str
) -> None:
    """Most of each step is no code of the script's then, and to do less of it is no advice."""
    starved = steps(80, other_s=0.06, forward_s=0.01, backward_s=0.02, optimizer_s=0.01)
    made = facts({"steps": starved}, stacks=[at(CALL, 60, *below), at("", 40)])
    made.ask(SENDERS, lambda: ("its process 8 (python) sleeps",))
    (sign,) = signs("own-code", made)
    assert sign.certainty == "possible"
    assert sign.summary.startswith(said)
    assert f"records.py:{line(CALL)}" in sign.summary
    assert fix in sign.fix
    assert bool(sign.fix) == bool(fix)
    assert ("its process 8 (python) sleeps" in sign.evidence) == (below in {BETWEEN, PIPE})


def test_one_that_waits_now_and_then_is_not_called_starved() -> None:
    """Its own code is most of what is sampled, and the wait for the queue little."""
    busy = steps(80, other_s=0.06, forward_s=0.01, backward_s=0.02, optimizer_s=0.01)
    stacks = [at("os.fsync(loss)", 50), at(CALL, 10, *QUEUE), at("", 40)]
    (sign,) = signs("own-code", facts({"steps": busy}, stacks=stacks))
    assert sign.summary.startswith("60 % of each step is code of the script")


def holding(
    number: int, thread: str = "prefetcher", *, above: str = "", at: str = "7"
) -> tuple[tuple[str, ...], int]:
    """Samples in which a thread holds the interpreter lock."""
    return (f"thread ({at}): {thread}", above, "Prefetcher.run (/job/data.py:52)"), number


@pytest.mark.parametrize(
    ("stacks", "crowd", "columns", "certainty"),
    [
        ([holding(45)], "", {}, "likely"),
        ([holding(45)], "others use the machine", {}, "possible"),
        ([holding(22), holding(8, "MainThread")], "", {}, "possible"),
        ([holding(n, above=str(n)) for n in (14, 13, 12)], "", {}, "likely"),  # three callers
        ([holding(45)], "", {"thread_id": 7}, None),  # it is the training thread itself
        ([holding(45), holding(3, "trainer", at="11")], "", {"thread_id": 11}, "likely"),
        ([holding(45)], "", {"thread_id": 11}, "likely"),  # that one never holds it
        ([holding(10), holding(20, "MainThread")], "", {}, None),
        ([holding(45, "MainThread")], "", {}, None),
        ([holding(45)], "", {"process_cpu_s": 0.03}, None),  # no other thread computes
        ([holding(45)], "", {"cpu_s": 0.09, "process_cpu_s": 0.2}, None),  # it does not wait
        ([holding(45)], "", {"process_cpu_s": None}, None),
    ],
)
def test_a_thread_that_holds_the_interpreter_lock(
    stacks: list[Any], crowd: str, columns: dict[str, Any], certainty: str | None
) -> None:
    """It is named, with its line, where the training thread computes for a part of its steps."""
    usual = {"cpu_s": 0.03, "process_cpu_s": 0.12, **columns}
    made = facts({"steps": steps(80, **usual)}, stacks=stacks)
    made.crowd = crowd
    found = signs("competing-thread", made)
    if certainty is None:
        assert found == []
        return
    (sign,) = found
    assert sign.certainty == certainty
    assert sign.summary.startswith("Thread prefetcher holds the interpreter lock (GIL) for")
    assert "Prefetcher.run (data.py:52)" in sign.summary


def test_samples_that_bear_no_number_of_the_kernel() -> None:
    """Python before 3.11 tells the main thread alone, whose number may be a container's."""
    record = {"steps": steps(80, thread_id=11)}
    made = facts(record, stacks=[holding(45, "trainer", at="0x7F00")])
    with pytest.raises(NotLookedAt, match=r"before Python 3\.11"):
        made.hot_lines()
    made = facts(record, stacks=[holding(45, "MainThread", at="0x7F00")])
    folder: Any = made.folder
    folder.path = Path("/nowhere/11-99-4026532000")
    assert [line.place for line in made.hot_lines()] == ["data.py:52"]
