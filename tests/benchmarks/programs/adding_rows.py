"""Adds rows to a table of its own, and prints what one takes of the thread's processor time."""

from __future__ import annotations

import sys
import time

import probing

COUNT = int(sys.argv[1])


def main() -> None:
    table = probing.table("texts", {"episode": int, "reward": float, "note": str})
    if sys.argv[2] == "recorded":
        probing.start()
    start = time.thread_time_ns()
    for number in range(COUNT):
        table.add(episode=number, reward=0.5, note="seed 7")
    print((time.thread_time_ns() - start) / COUNT * 1e-3)


if __name__ == "__main__":
    main()
