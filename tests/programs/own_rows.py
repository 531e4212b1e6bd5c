"""Declares tables of its own, adds rows to them as the argument says, and waits to be ended."""

from __future__ import annotations

import os
import sys
import time

import probing
from probing.script import own_tables

COLUMNS = {"episode": int, "reward": float, "note": str, "won": bool}
EPISODES = probing.table("episodes", COLUMNS, doc="One row per episode. And more.", rows=1000)


def rows() -> None:
    """What fits, what is left out, and what does not fit; the first row is before the agent."""
    EPISODES.add(episode=-1)
    assert EPISODES.write is None
    probing.start()
    EPISODES.add(episode=1, reward=0.5, note="Grüße", won=True)
    EPISODES.add(episode=2, reward=float("nan"))
    EPISODES.add(note="é" * 100)
    EPISODES.add(episode="3", reward="much", note=b"raw", won=2)
    EPISODES.add(episode=2**70, reward=10**400, rewrd=1.0)
    assert probing.table("episodes", COLUMNS) is EPISODES
    later = probing.table("later", {"value": int})
    later.add(value=7)


def many() -> None:
    """Far more rows than it holds."""
    probing.start()
    for number in range(int(sys.argv[2])):
        EPISODES.add(episode=number, reward=0.5, note="same")


def forked() -> None:
    """Children add rows: one without an agent, one that starts its own."""
    probing.start()
    EPISODES.add(episode=1)
    for starts in (False, True):
        child = os.fork()
        if child == 0:
            EPISODES.add(episode=2)
            probing.table("of_the_child", {"value": int}).add(value=1)
            if starts:
                probing.start()
                EPISODES.add(episode=3)
                print("child", os.getpid(), flush=True)
                probing.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    EPISODES.add(episode=4)


def stopped() -> None:
    """The agent goes and comes, and records nothing for a while."""
    probing.start()
    EPISODES.add(episode=1)
    probing.stop()
    assert EPISODES.write is None
    EPISODES.add(episode=2)
    probing.start(recording=False)
    EPISODES.add(episode=3)
    probing.stop()
    probing.start()
    EPISODES.add(episode=4)
    assert own_tables.table("episodes", COLUMNS) is EPISODES


def training() -> None:
    """A rank with tensors and steps."""
    import torch

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(3):
        loss = model(torch.ones(1, 2)).sum()
        EPISODES.add(reward=loss.detach() * 0 + 0.25, episode=torch.tensor(number))
        loss.backward()
        optimizer.step()
    EPISODES.add(reward=torch.ones(2), note=torch.tensor(1), won=torch.tensor(True))
    rank = os.environ.get("RANK")
    if rank == "1":
        probing.table("only_one", {"value": int}).add(value=1)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("ready", flush=True)
    time.sleep(600)
