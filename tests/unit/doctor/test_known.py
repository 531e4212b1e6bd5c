"""What helps is told with a wait or an error that is known, and with no other."""

from __future__ import annotations

import pytest

from probing.diagnosis.hang.evidence import Cause, Verdict
from probing.diagnosis.hang.words.known import known_remedies

ENDS = {
    "bdb.BdbQuit": "PYTHONBREAKPOINT=0",
    "RuntimeError: The server socket has failed to listen (EADDRINUSE)": "MASTER_PORT",
    "OSError: [Errno 28] No space left on device": "df -i",
    "OSError: [Errno 24] Too many open files: '/dev/shm/x'": "ulimit",
    "RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error.": "--shm-size",
    "RuntimeError: CUDA error: device-side assert triggered": "CUDA_LAUNCH_BLOCKING",
    "RuntimeError: Trying to backward through the graph a second time": "detach()",
    "RuntimeError: one of the variables needed for gradient computation has been modified by an"
    " inplace operation: [torch.FloatTensor [64]]": "anomaly",
    "ValueError: Expected more than 1 value per channel when training": "drop_last",
    "RuntimeError: tensor 0 does not require grad and does not have a grad_fn": ".item",
    "RuntimeError: Expected all tensors to be on the same device, but found two": "batch.to",
    "RuntimeError: DataLoader worker (pid(s) 4) exited unexpectedly": "num_workers=0",
}
WAITS = {
    "is waiting for a child process, at a.py:6": "time limit",
    "is waiting for input from the terminal, at a.py:6": "breakpoint()",
    "is waiting for data from a TLS socket, at a.py:6": "retry",
    "is waiting for an item from a queue, at a.py:6": "get(timeout=...)",
    "is waiting for another process to send, at a.py:6": "poll(timeout)",
    "is waiting for a batch from a DataLoader worker, at a.py:6": "timeout=600",
}


def _ended(text: str) -> Verdict:
    headline = f"Process 7 has ended: it ended with an unhandled {text}"
    return Verdict(kind="ended", is_hang=False, has_ended=True, headline=headline)


def _waits(what: str, *evidence: str) -> Verdict:
    cause = Cause(rank=None, pid=7, host="here", what=what, evidence=evidence)
    return Verdict(kind="process", is_hang=True, headline="Process 7", causes=(cause,))


@pytest.mark.parametrize(("text", "word"), ENDS.items())
def test_an_error_that_is_known_has_its_remedy(text: str, word: str) -> None:
    """By its words, whichever process it ended."""
    (remedy,) = known_remedies(_ended(text))
    assert word in remedy


@pytest.mark.parametrize(("what", "word"), WAITS.items())
def test_a_wait_that_is_known_has_its_remedy(what: str, word: str) -> None:
    """By what the process is said to wait for."""
    (remedy,) = known_remedies(_waits(what))
    assert word in remedy


def test_what_a_child_waits_for_counts_as_well() -> None:
    """A pipe that nobody reads is another fault than a child that takes its time."""
    child = "its process 8 (python) is waiting for room in a pipe at <string>:1 in <module>"
    (remedy,) = known_remedies(_waits("is waiting for a child process", child, "wait (a.py:1)"))
    assert "communicate()" in remedy


def test_that_nobody_is_left_to_send_counts_as_well() -> None:
    """Whether a queue has to wait or waits for ever is told by who has its other end."""
    nobody = "no other process is seen to have the other end of its pipe"
    what = "is waiting for an item from a queue between processes"
    (remedy,) = known_remedies(_waits(what, nobody, "its process 8 has ended"))
    assert "anew" in remedy


@pytest.mark.parametrize("text", ["ValueError: lr must be positive", "KeyboardInterrupt"])
def test_of_others_nothing_is_said(text: str) -> None:
    """No advice for its own sake; and names of files are no words of the wait."""
    assert known_remedies(_ended(text)) == []
    assert known_remedies(_waits("is waiting for a lock", "input (queue.py:3)")) == []
