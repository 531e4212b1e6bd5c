"""Things happen in the midst of calls that are on record; prints `done` at the end."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import probing

X = torch.arange(4.0)


class Leaf(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Within(nn.Module):
    """Does something between two calls of modules, three calls deep."""

    def __init__(self, event: Callable[[], object]) -> None:
        super().__init__()
        self.event = event
        self.before, self.after = Leaf(), Leaf()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        self.event()
        return self.after(x)


def during(event: Callable[[], object]) -> torch.Tensor:
    """The result of a model in the midst of which it happens."""
    result: torch.Tensor = nn.Sequential(nn.Sequential(Within(event)), Leaf())(X)
    return result


def fork() -> None:
    """The child ends its call, makes another one and forks once more."""

    def in_child() -> bool:
        return torch.equal(during(lambda: None), X + 3)

    pid = os.fork()
    if not pid:
        inner = os.fork()
        is_right = in_child()
        if inner:
            is_right &= os.waitpid(inner, 0)[1] == 0
        os._exit(0 if is_right else 1)
    assert os.waitpid(pid, 0)[1] == 0


def pause() -> None:
    """Recording stops and goes on, as somebody who asks from outside can have it."""
    process = probing.connect(os.getpid())
    process.set("recording", "0")
    during(lambda: None)
    process.set("recording", "1")


def restart() -> None:
    """The agent leaves, and comes again."""
    probing.stop()
    during(lambda: None)
    probing.start()
    during(lambda: None)


def end_thread() -> None:
    """A thread ends in the midst of a call of its own, and another one is given its number."""
    for _ in range(3):
        thread = threading.Thread(target=during, args=(leave_thread,))
        thread.start()
        thread.join()


def leave_thread() -> None:
    raise SystemExit


def trace_calls(seen: list[str], original: Any) -> Callable[..., Any]:
    """A tool's own stand-in for `Module.__call__`."""

    @functools.wraps(original)
    def call(self: nn.Module, *args: object, **kwargs: object) -> object:
        seen.append(type(self).__name__)
        return original(self, *args, **kwargs)

    return call


def other_tools() -> None:
    """Their wrappers lie below ours and above it, come while it is there and go in any order."""
    everything = ["Sequential", "Sequential", "Within", "Leaf", "Leaf", "Leaf"]
    below, above = list[str](), list[str]()
    probing.stop()
    torchs = nn.Module.__call__
    nn.Module.__call__ = trace_calls(below, torchs)
    theirs = nn.Module.__call__
    probing.start()
    assert torch.equal(during(lambda: None), X + 3)
    ours = nn.Module.__call__
    nn.Module.__call__ = trace_calls(above, ours)
    assert torch.equal(during(lambda: None), X + 3)
    assert (below, above) == (2 * everything, everything)
    nn.Module.__call__ = ours
    assert torch.equal(during(lambda: None), X + 3)
    probing.stop()
    assert nn.Module.__call__ is theirs
    nn.Module.__call__ = torchs
    probing.start()


EVENTS = (fork, pause, restart, end_thread, other_tools)

if __name__ == "__main__":
    for event in EVENTS:
        during(lambda: None)
        if event is other_tools:
            event()
        else:
            assert torch.equal(during(event), X + 3), event
        assert torch.equal(during(lambda: None), X + 3), event
        print(event.__name__, flush=True)
    print("done", flush=True)
    time.sleep(600)
