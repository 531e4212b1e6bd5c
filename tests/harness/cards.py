"""Cards of processes that tests make up."""

from __future__ import annotations

import os
import time
from typing import Any

from probing.linux import process
from probing.messages.card import Card


def card_of(pid: int, start_time: int, **others: Any) -> Card:
    """The card of a process of this boot; whatever is not given is that of a plain script."""
    values: dict[str, Any] = {
        "boot_id": process.boot_id(),
        "pid_namespace": process.pid_namespace(),
        "uid": os.getuid(),
        "host": "node1",
        "command": ("python", "train.py"),
        "executable": "/usr/bin/python3",
        "python": "3.13.0",
        "version": "1.0",
        "started_ns": time.time_ns(),
        "rank": None,
        "local_rank": None,
        "world_size": None,
    }
    return Card(pid=pid, start_time=start_time, **{**values, **others})
