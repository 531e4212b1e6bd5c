"""A rank of a job without torch: rows that follow from its rank, written by the agent's recorder.

RANK and WORLD_SIZE say which it is. Arguments: how many rows, then what it does once they are
written: `wait`, or `hold` to keep the interpreter lock.
"""

from __future__ import annotations

import os
import random
import sys
import time

from probing.agent import lifecycle
from probing.ring.format import DONE, FAILED
from probing.ring.writer import Names, RingWriter
from probing.tables import STEPS, TORCH_TRACE

MODULES = ("embed", "blocks.0.attn", "blocks.0.mlp", "blocks.1.attn", 'it\'s "odd"', "head")


def write_trace(rank: int, rows: int) -> None:
    """Module calls; every ninth is still open, every seventh has failed."""
    agent = lifecycle.current()
    assert agent is not None
    names = Names(agent.folder.names)
    ring = RingWriter(agent.folder.ring("torch_trace"), TORCH_TRACE, max(rows, 2))
    draw = random.Random(rank)
    fields = [f.column.name for f in ring.layout.opening]
    for i in range(rows):
        values = {
            "step": i // 8,
            "module": names.intern(draw.choice(MODULES)) if i % 11 else 0,
            "stage": i % 4,
            "class": names.intern(f"Class{i % 3}"),
            "root": names.intern("Net"),
            "depth": draw.randrange(4),
            "training": i % 2,
            "thread_id": os.getpid() & 0xFFFF,
            "start_ns": i * 1000 + rank,
        }
        word = ring.open_row(*(values.get(name, 0) for name in fields))
        if i % 9:
            closing = {"duration_ns": draw.randrange(1_000_000), "allocated_bytes": i << 20}
            ring.close_named(word, DONE if i % 7 else FAILED, closing)


def write_steps(rank: int, rows: int) -> None:
    """Steps, with numbers that are NULL now and then."""
    agent = lifecycle.current()
    assert agent is not None
    ring = RingWriter(agent.folder.ring("steps"), STEPS, max(rows, 2))
    draw = random.Random(1000 + rank)
    fields = [f.column.name for f in ring.layout.opening]
    for step in range(rows):
        values = {"step": step, "start_ns": step * 10_000 + rank}
        word = ring.open_row(*(values.get(name, 0) for name in fields))
        closing: dict[str, object] = {
            "duration_ns": 1_000_000 + draw.randrange(500_000) + (rank == 3) * 2_000_000,
            "tokens": draw.randrange(100, 200),
        }
        if step % 5:
            closing |= {"loss": draw.gauss(3.0, 1.0), "grad_norm": draw.random()}
        ring.close_named(word, DONE, closing)


if __name__ == "__main__":
    count, then = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "wait"
    number = int(os.environ["RANK"])
    if count:
        write_trace(number, count)
        write_steps(number, count // 8)
    print("ready", flush=True)
    while then == "hold":
        pow(3, 10_000_000)  # one call that never lets the interpreter lock go
    time.sleep(600)
