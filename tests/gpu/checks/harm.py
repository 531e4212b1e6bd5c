"""What would kill or change a training."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import probing
from probing.agent.sources.collectives.flight_recorder import flight_recorder_rows
from tests.gpu.checks import outside
from tests.gpu.devices import MAKINGS, WAITS, Device
from tests.gpu.findings import Finding, expect, left_out, limit, seen
from tests.gpu.trainings import ALL_STEPS, Recorded, Small, pinned_bytes, wait_for

_EPOCHS, _WORKERS = 3, 4
_BEHIND_S = 0.2


def fork(device: Device) -> Iterator[Finding]:
    """Epochs with forking loaders, a program that is started, and children that end as programs."""
    recorded = Recorded(**ALL_STEPS)
    data = TensorDataset(torch.randn(128, 256, device="cpu"))
    device.begin()
    training = Small(device)
    died = 0
    for _ in range(_EPOCHS):
        loaders = [
            DataLoader(data, batch_size=16, num_workers=n, multiprocessing_context="fork")
            for n in (_WORKERS, 2)
        ]
        try:
            for (x,) in loaders[0]:
                training.step(x.to(device.here))
            with torch.no_grad():
                for (x,) in loaders[1]:
                    training.model(x.to(device.here))
        except RuntimeError as error:  # of a worker that was killed by a signal
            died += 1
            print(error, file=sys.stderr)
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    ends: Any
    for ends in (os._exit, sys.exit):
        pid = os.fork()
        if not pid:
            gc.collect()
            ends(0)
        died += os.waitpid(pid, 0)[1] != 0
    yield expect("workers and children that died", died, must=0)
    yield expect("problems of the record", recorded.problems(), must=[])


def capture(device: Device) -> Iterator[Finding]:
    """A whole step is captured while numbers of the step before are on their way."""
    recorded = Recorded(**ALL_STEPS)
    device.begin()
    recorded.pause()
    plain = _captured(device, None)
    recorded.go_on()
    told = _captured(device, recorded)
    same = all(torch.equal(a, b) for a, b in zip(plain, told, strict=True))
    yield expect("weights after replays, recorded and not, are the same bits", same, must=True)
    rows = [row for row in recorded.rows("torch_trace") if row["stage"] == "replay"]
    yield expect("rows of replays", len(rows), must=10)
    recorded.training.recording.rows._late.flush()
    steps = recorded.rows("steps")
    late = [row["loss"] for row in steps[:4] if not row["is_open"]]
    yield expect("losses that came after the capture", None not in late, must=True)
    yield expect("problems of the record", recorded.problems(), must=[])
    if device.is_fake:
        yield left_out("make_graphed_callables", "the made-up CUDA computes nothing in a replay")
        return
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).to(device.here)
    x = torch.randn(8, 64, device=device.here)
    graphed: Any = torch.cuda.make_graphed_callables(model, (x,))
    graphed(x).sum().backward()
    yield expect("make_graphed_callables", "done", must="done")


def _captured(device: Device, recorded: Recorded | None) -> list[torch.Tensor]:
    """Weights after eager steps, a captured one, and ten replays, asked all the while."""
    training = Small(device)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        training.steps(3)
    device.sleep(_BEHIND_S)
    graph = torch.cuda.CUDAGraph()
    over = threading.Event()
    asking = threading.Thread(target=_ask, args=(recorded, over))
    asking.start()
    try:
        with torch.cuda.stream(side):
            training.step()
            graph.capture_begin()
            training.step()
            graph.capture_end()
    finally:
        over.set()
        asking.join()
    torch.cuda.synchronize()
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    return training.weights()


def _ask(recorded: Recorded | None, over: threading.Event) -> None:
    """What somebody may ask beside a capture, again and again."""
    while recorded is not None and not over.wait(0.002):
        accelerator = recorded.training.accelerator
        accelerator.memory_figures()
        accelerator.segments()
        flight_recorder_rows()


def waits(device: Device) -> Iterator[Finding]:
    """Nothing waits for the device, or has it make anything, once the training runs."""
    recorded = Recorded(**ALL_STEPS)  # so that all it makes is made at once
    device.begin()
    training = Small(device)
    training.steps(10 if device.is_fake else 80)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    training.steps(20 if device.is_fake else 200)
    torch.cuda.set_sync_debug_mode("default")
    yield expect("problems after steps in which to wait is an error", recorded.problems(), must=[])
    recorded.pause()
    plain = _queued(device, training)
    recorded.go_on()
    training.steps(10 if device.is_fake else 40)
    queued = _queued(device, training)
    yield seen("five steps queued behind 0.2 s of work, not recorded", f"{plain * 1e3:.1f} ms")
    if device.is_fake:
        yield left_out("the same, recorded", "the made-up CUDA takes the host's own time")
    else:
        yield limit("the same, recorded", queued, most=0.15, unit="s")
    torch.cuda.synchronize()
    training.steps(10 if device.is_fake else 100)
    with device.calls() as told:
        training.steps(20)
    recorded.pause()
    training.steps(10)
    with device.calls() as bare:
        training.steps(20)
    for name in (*WAITS, *MAKINGS):
        yield expect(f"{name} in 20 steps, over those without", told[name] - bare[name], must=0)


def _queued(device: Device, training: Small) -> float:
    """How long the host takes to queue five steps behind a busy device."""
    torch.cuda.synchronize()
    device.sleep(_BEHIND_S)
    begin = time.perf_counter()
    for _ in range(5):
        training.step()
    return time.perf_counter() - begin


def no_context(device: Device) -> Iterator[Finding]:
    """A process that uses no device does not begin to because of the agent."""
    recorded = Recorded()
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        model(torch.randn(2, 8)).sum().backward()
        optimizer.step()
    training = recorded.training
    training.accelerator.memory_figures()
    training.accelerator.device_totals(fresh=True)
    training.segments()
    yield expect("CUDA is in use", torch.cuda.is_initialized(), must=False)
    opened = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
    # What NVML opens itself makes no context.
    used = [path for path in opened if path.startswith("/dev/nvidia") and "ctl" not in path]
    yield seen("device files that are open", used or "none")
    yield from outside.attached(is_fake=device.is_fake)


def detach(device: Device) -> Iterator[Finding]:
    """The agent comes and goes, twice: the numbers are the same, and so is the memory."""
    device.begin()
    plain = Small(device)
    plain.steps(50)
    expected = plain.weights()
    torch.cuda.synchronize()
    before, pinned = torch.cuda.memory_allocated(), [pinned_bytes()]
    call = torch.nn.Module.__call__
    training = Small(device)
    training.steps(10)
    for _ in range(2):
        Recorded()
        training.steps(10)
        yield expect(
            "it stands in for Module.__call__", torch.nn.Module.__call__ is not call, must=True
        )
        probing.stop()
        training.steps(10)
        gc.collect()
        torch.cuda.synchronize()
        pinned.append(pinned_bytes())
    yield limit("pinned memory that stays for the next agent", (pinned[1] - pinned[0]) / 1024,
                most=64, unit="KiB")  # fmt: skip
    yield expect("bytes more of it after the second", pinned[2] - pinned[1], must=0)
    same = all(torch.equal(a, b) for a, b in zip(expected, training.weights(), strict=True))
    yield expect("weights are the same bits", same, must=True)
    yield expect("Module.__call__ is torch's again", torch.nn.Module.__call__ is call, must=True)
    del training
    gc.collect()
    torch.cuda.synchronize()
    yield expect("bytes left allocated", torch.cuda.memory_allocated() - before, must=0)
    gone = wait_for(lambda: not [t for t in threading.enumerate() if t.name.startswith("probing-")])
    yield expect("threads have ended", gone, must=True)
