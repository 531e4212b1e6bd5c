"""What ranks that do not exist answer beside rows: who they are, and where their threads stand."""

from __future__ import annotations

from probing.messages import common as wire
from probing.messages.about import stacks
from probing.messages.card import Card

_SLOW = 13
"""One rank in 97 computes, and the others wait for it."""


def is_slow(rank: int) -> bool:
    """Whether a rank is late."""
    return rank % 97 == _SLOW


def card(rank: int, ranks: int) -> Card:
    """Who a rank is."""
    return Card(
        pid=1000 + rank, start_time=1, boot_id="", pid_namespace=0, uid=0,
        host=f"host{rank // 8}", command=("python", "train.py", f"--rank={rank}"),
        executable="python", python="3.11.7", version="0", started_ns=1, rank=rank,
        local_rank=rank % 8, world_size=ranks, job="fake",
    )  # fmt: skip


def backtrace(rank: int) -> wire.Backtrace:
    """Where the main thread of a rank is."""
    inner = ("all_reduce", "/site-packages/torch/distributed/distributed_c10d.py", 2806)
    if is_slow(rank):
        inner = ("load", "/home/me/data.py", 40)
    calls = (inner, ("step", "/home/me/train.py", 25), ("<module>", "/home/me/train.py", 60))
    frames = tuple(stacks.Frame(func=f, file=file, lineno=line) for f, file, line in calls)
    waiting = None if is_slow(rank) else "in a collective: all_reduce"
    main = stacks.ThreadStack(
        thread_id=1000 + rank, name="MainThread", is_main=True, frames=frames, waiting=waiting
    )
    return wire.Backtrace(pid=1000 + rank, source="agent", threads=(main,))
