"""A collective that has been entered, until its row is complete.

Rules of this file: holds no tensor, and a work only by what gives it.
"""

from __future__ import annotations

from typing import Any

from ....ring.format import NULL_INT
from ..shared.thread_state import ThreadState
from ..torch_types import Device
from .call_tensors import device_of


class Call:
    """A collective that has been entered, until its row is complete.

    Attributes:
        word: Its row.
        start_ns: When it was entered.
        group: The number of the name of its group.
        is_async: Whether the program waits for it later, if at all.
        is_on_host: Whether its work is known to be done by the host.
        device: That of its tensors; None where they are on the host, or there are none.
        work: Gives what torch has returned for it, as long as that lives.
        outputs: The storages that it fills, where only they tell for what the program waits.
        begun: The mark in front of it in the device's queue, where it is timed there.
        reached: The mark to which the device comes when it has ended there.
        together: Calls that were queued as one with it, and end as one.
    """

    __slots__ = (
        "begun",
        "device",
        "group",
        "is_async",
        "is_on_host",
        "outputs",
        "reached",
        "start_ns",
        "together",
        "wait_ns",
        "word",
        "work",
    )

    def __init__(
        self,
        word: int,
        start_ns: int,
        group: int = 0,
        *,
        is_async: bool,
        is_on_host: bool,
        device: Device | None = None,
    ) -> None:
        self.word = word
        self.group = group
        self.start_ns = start_ns
        self.is_async = is_async
        self.is_on_host = is_on_host
        self.device = device
        self.together: tuple[Call, ...] = ()
        self.work: Any = None
        self.outputs: tuple[int, ...] = ()
        self.begun: Any = None
        self.reached: Any = None
        self.wait_ns = NULL_INT

    @classmethod
    def of(cls, word: int, start_ns: int, group: int, tensors: Any, *, is_async: bool) -> Call:
        """One on such tensors, or on none."""
        device = device_of(tensors)
        is_on_host = tensors is not None and device is None
        return cls(word, start_ns, group, is_async=is_async, is_on_host=is_on_host, device=device)


Awaited = tuple[int, int, int, ThreadState, Any]
"""One that its caller waits for at once, on the cheap path: its row, where that lies in the ring,
when it was entered, the state of the thread that has, and the device that does it; None where the
host does, so that it is over once it has been waited for. A plain tuple, because one is made at
every call."""


def call_of(awaited: Awaited) -> Call:
    """The same for what does not mind the cost."""
    word, _, start_ns, _, device = awaited
    return Call(word, start_ns, is_async=False, is_on_host=device is None, device=device)
