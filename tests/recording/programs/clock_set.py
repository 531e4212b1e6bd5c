"""Trains while somebody sets the clock, and prints what the monotonic clock said of each step.

The time of day is that of a clock which starts an hour slow and is set between any two steps: by an
hour and by ten years, forward and back. One line of JSON per step: before it and behind it on the
monotonic clock. Then `ready` is printed, and it goes on training until it is ended.
"""

from __future__ import annotations

import itertools
import json
import time

HOUR_NS = 3600 * 10**9
YEARS_NS = 10 * 365 * 24 * HOUR_NS
JUMPS_NS = (HOUR_NS, -HOUR_NS, YEARS_NS, -YEARS_NS, -HOUR_NS, HOUR_NS, -YEARS_NS, YEARS_NS)
set_by_ns = -HOUR_NS
_time_ns = time.time_ns


def time_ns() -> int:
    """What the clock shows."""
    return _time_ns() + set_by_ns


time.time_ns = time_ns
time.time = lambda: time_ns() / 1e9


def main() -> None:
    """Train a step after each time that the clock is set."""
    global set_by_ns  # noqa: PLW0603 - there is one clock
    import torch

    import probing

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in itertools.count():
        before = time.perf_counter_ns()
        model(torch.ones(2, 4)).sum().backward()
        probing.metric(step=step)
        optimizer.step()
        optimizer.zero_grad()
        print(json.dumps([before, time.perf_counter_ns()]), flush=True)
        if step < len(JUMPS_NS):
            set_by_ns += JUMPS_NS[step]
        elif step == len(JUMPS_NS):
            print("ready", flush=True)
        else:
            time.sleep(0.05)


main()
