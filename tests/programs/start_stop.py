"""Starts and stops the agent by hand, and prints what of it was left behind each time."""

from __future__ import annotations

import os
import sys
import threading

import torch

import probing


def state() -> dict[str, object]:
    """Everything that starting the agent may change in a process."""
    optimizer = sys.modules["torch.optim.optimizer"]
    return {
        "call": torch.nn.Module.__call__,
        "hooks": (
            len(optimizer._global_optimizer_pre_hooks),
            len(optimizer._global_optimizer_post_hooks),
        ),
        "threads": sorted(t.name for t in threading.enumerate()),
        "files": sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                        if os.path.islink(f"/proc/self/fd/{n}")),
        "maps": sum(".ring" in line for line in open("/proc/self/maps")),
        "finders": [type(f).__name__ for f in sys.meta_path],
        "streams": (sys.stdout, sys.stderr),
    }  # fmt: skip


if __name__ == "__main__":
    model = torch.nn.Linear(2, 2)
    model(torch.ones(2))
    before = state()
    for _ in range(3):
        probing.start(trace_rows=128)
        probing.start()
        model(torch.ones(2))
        assert torch.nn.Module.__call__ is not before["call"]
        if len(sys.argv) > 1:  # have the server up, too
            print(probing.connect(os.getpid()).eval("1 + 1").value, flush=True)
        probing.stop()
        probing.stop()
        after = state()
        assert after == before, (before, after)
    steps = "SELECT step, count(*) AS calls FROM python.torch_trace WHERE stage = 'forward'"
    query = probing.connect(os.getpid()).query
    for row in query(f"{steps} AND module = 'Linear' GROUP BY step ORDER BY step").to_pylist():
        print(row, flush=True)
    print(query("SELECT list(eval_id ORDER BY seq) AS evals FROM python.evals").to_pylist())
    print("done", flush=True)
