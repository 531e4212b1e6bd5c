"""A job whose ranks are held up, or end, in ways that are easily mistaken: `held_rank.py FAULT`.

Each rank prints `ready` before it joins the others and `step N` at every step. Whoever holds up the
others prints `injected` just before; it is rank 1, but where it saves or evaluates, which rank 0
does, and where a rank has nothing left to do, which is rank 0, too. Before it ends without an error
it waits for the file `go`. A rank that has failed goes on to exist, if FAULT says so: it prints
`failed`.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LIFETIME_S = 600
FOREVER_S = 10**6
FAULT_STEP = 4
BLOCK = bytes(1 << 20)
FAULT = sys.argv[1]
OF_ROOT = {"saving", "syncing", "evaluating", "beside", "packing", "trickling", "leaving"}
CULPRIT = 0 if FAULT in OF_ROOT else 1
PATIENCE_S = LIFETIME_S if FAULT not in {"timeout", "monitored"} else 5
"""How long the others wait in the step that the fault is put into."""
LOCK = threading.Lock()


def write_checkpoint() -> None:
    """Never ends, and writes all the time."""
    with Path(f"state-{os.getpid()}.bin").open("wb") as file:
        while True:
            file.writelines([BLOCK] * 8)
            time.sleep(0.05)
            if file.tell() >= 64 << 20:
                file.seek(0)
            if FAULT == "syncing":
                os.fsync(file.fileno())


def pack_checkpoint() -> None:
    """Never ends, and has a process that computes all the time."""
    code = "import time, zlib\nwhile True: zlib.compress(bytes(1 << 22)); time.sleep(0.01)"
    subprocess.run([sys.executable, "-c", code], check=True)


def trickle() -> None:
    """Never ends, and writes a little from time to time."""
    with Path(f"state-{os.getpid()}.bin").open("wb") as file:
        while True:
            file.write(BLOCK[: 1 << 17])
            file.flush()
            time.sleep(0.2)


def save_beside() -> None:
    """Waits for a thread that writes so."""
    saver = threading.Thread(target=trickle, name="saver", daemon=True)
    saver.start()
    saver.join()


def wait_for_go() -> None:
    """Waits until it is known that the others wait for this rank."""
    while not Path("go").exists():
        time.sleep(0.01)


def end_well() -> None:
    """Has no batch left, and is not in want of the others."""
    wait_for_go()
    dist.destroy_process_group()
    sys.exit()


def evaluate() -> float:
    """Never ends, and computes all the time."""
    total = 0.0
    while True:
        total += score(total)


def evaluate_beside() -> None:
    """Waits for a thread that never ends, at one line, and computes all the time."""
    done = threading.Event()

    def run() -> None:
        for _ in itertools.count():
            ...
        done.set()

    threading.Thread(target=run, name="evaluator", daemon=True).start()
    done.wait()


def score(value: float) -> float:
    return sum(value * part for part in range(100))


def take_lock() -> None:
    """Waits for a lock that this thread has already."""
    with LOCK, LOCK:
        return


def end_without_a_word() -> None:
    wait_for_go()
    os.kill(os.getpid(), signal.SIGKILL)


def fail_in_time() -> None:
    raise TimeoutError("no answer from the feature store within 3 s")


def wait_for_key() -> None:
    store = dist.distributed_c10d._get_default_store()
    store.wait(["nobody sets this"], dt.timedelta(seconds=FOREVER_S))


def make_groups(rank: int) -> None:
    """Two groups that all ranks make, one of the ranks in another order."""
    sizes = [[0, 1], [0, 1, 2]]
    for ranks in sizes if rank != CULPRIT else reversed(sizes):
        dist.new_group(ranks)


def make_one_group(rank: int) -> None:
    """A group that one of its members does not make; who is no member is past it at once."""
    if rank != CULPRIT:
        dist.new_group([0, CULPRIT])
    elif FAULT == "late_group":
        take_lock()


def hold_up(rank: int) -> None:
    """What the fault does in the step that it is put into."""
    if FAULT == "no_send" and rank == 0:
        dist.recv(torch.zeros(4), src=CULPRIT)
    if rank != CULPRIT and FAULT not in BY_ALL:
        return
    print("injected", flush=True)
    FAULTS[FAULT](rank)


BY_ALL = {"sleeping", "groups", "skipped_group", "late_group"}
FAULTS: dict[str, Callable[[int], object]] = {
    "saving": lambda _: write_checkpoint(),
    "syncing": lambda _: write_checkpoint(),
    "evaluating": lambda _: evaluate(),
    "beside": lambda _: evaluate_beside(),
    "packing": lambda _: pack_checkpoint(),
    "trickling": lambda _: save_beside(),
    "leaving": lambda _: end_well(),
    "sleeping": lambda _: time.sleep(FOREVER_S),
    "killed": lambda _: end_without_a_word(),
    "own_timeout": lambda _: fail_in_time(),
    "timeout": lambda _: take_lock(),
    "monitored": lambda _: take_lock(),
    "key": lambda _: wait_for_key(),
    "groups": make_groups,
    "skipped_group": make_one_group,
    "late_group": make_one_group,
    "no_send": lambda _: None,
    "no_init": lambda _: None,
}


def train(rank: int) -> None:
    model: torch.nn.Module = torch.nn.Linear(16, 4)
    if FAULT == "leaving":
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(10**6):
        model(torch.randn(8, 16)).square().mean().backward()
        patience = dt.timedelta(seconds=PATIENCE_S if step == FAULT_STEP else LIFETIME_S)
        if step == FAULT_STEP:
            dist.distributed_c10d._set_pg_timeout(patience)
            hold_up(rank)
        if FAULT == "monitored":
            dist.monitored_barrier(timeout=patience)
        for parameter in model.parameters() if FAULT != "leaving" else ():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        print(f"step {step}", flush=True)
        time.sleep(0.02)


def main() -> None:
    rank = int(os.environ["RANK"])
    print("ready", flush=True)
    if FAULT == "no_init" and rank == CULPRIT:
        print("injected", flush=True)
        take_lock()
    dist.init_process_group("gloo", timeout=dt.timedelta(seconds=LIFETIME_S))
    try:
        train(rank)
    except Exception:
        if "LINGER" in os.environ:  # a process group's error, and a process that outlives it
            print("failed", flush=True)
            threading.Thread(target=time.sleep, args=(FOREVER_S,), name="uploader").start()
        raise


if __name__ == "__main__":
    signal.alarm(LIFETIME_S)
    if "IGNORE_TERM" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    torch.set_num_threads(1)
    main()
