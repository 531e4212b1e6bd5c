"""A training that actions are tried on; its arguments say how it sets its learning rate, and more.

``lambda``: by LambdaLR, in a function. ``own``: by itself, at each step, as nanoGPT does; it sets
gradients to zero in place, by hand. However long they run, their rates get no lower than what LAST
steps make of them. ``same``: by itself, to what an idle scheduler has set.
``even``: all parameters hold the same number after each step, so that a torn copy is seen; a plain
thread makes copies until one of them is torn. ``bad``: every gradient is NaN from step 20 on.
``hangs``: stops after 5 steps. ``told``: waits for a file ``go-N`` before step N. ``late``: waits
for a file ``go`` before its first step. ``pair``: two models with an optimizer each, and a third
optimizer that never steps. Each step's line is its loss.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

BASE = 0.5
LAST = 4000


class Even(nn.Module):
    """Parameters whose gradients are all 1."""

    def __init__(self) -> None:
        super().__init__()
        parts = [nn.Parameter(torch.zeros(2_000)) for _ in range(60)]
        self.parts = nn.ParameterList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([part.sum() for part in self.parts]).sum() * x.mean()


def copy(model: nn.Module) -> None:
    """Copy the parameters as people do it, from a thread that asks nobody."""
    copies = torn = 0
    while not torn:
        parts = []
        for parameter in model.parameters():
            parts.append(parameter.detach().clone())
            time.sleep(0)  # others get their turn, as where each part is written to a file
        copies += 1
        torn = len({float(v) for part in parts for v in (part.min(), part.max())}) > 1
    print("torn: one of", copies, flush=True)


def even() -> None:
    model = Even()
    sys.setswitchinterval(1e-5)  # threads take turns often, so that what can go wrong soon does
    threading.Thread(target=copy, args=(model,), daemon=True).start()
    optimizer = torch.optim.SGD(model.parameters(), lr=2**-10, foreach=False)
    x = torch.ones(1)
    while True:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()


def zero(model: nn.Module, optimizer: torch.optim.Optimizer, *, in_place: bool) -> None:
    if not in_place:
        optimizer.zero_grad()
        return
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.zero_()


def wait_for_go(kind: str, step: int) -> None:
    while kind == "told" and not Path(f"go-{step}").exists():
        time.sleep(0.002)


def main(kind: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=BASE)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: 1 / (1 + min(n, LAST) / 1000)
    )
    x, y, step = torch.randn(16, 4), torch.randn(16, 1), 0
    if kind == "resumed":
        step = resume(model, optimizer, scheduler)
    with Path("losses.txt").open("a", encoding="ascii", buffering=1) as losses:
        while kind != "resumed" or step < int(sys.argv[3]):
            wait_for_go(kind, step)
            if kind in {"own", "same"}:
                for group in optimizer.param_groups:
                    group["lr"] = BASE / (1 + min(step, LAST)) if kind == "own" else BASE
            loss = nn.functional.mse_loss(model(x), y)
            zero(model, optimizer, in_place=kind == "own" and step > 0)
            loss.backward()
            if kind == "bad" and step >= 20:
                for parameter in model.parameters():
                    parameter.grad = torch.full_like(parameter, torch.nan)
            optimizer.step()
            if kind not in {"own", "same"}:
                scheduler.step()
            step += 1
            losses.write(f"{step} {loss.item()!r}\n")
            if kind != "resumed":
                time.sleep(0.002)
            while kind == "hangs" and step == 5:
                time.sleep(1)


def pair() -> None:
    gen, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    opt_gen = torch.optim.AdamW(gen.parameters(), lr=0.002)
    opt_critic = torch.optim.AdamW(critic.parameters(), lr=0.004)
    idle = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.008)
    x = torch.randn(16, 4)
    while idle:
        opt_critic.zero_grad()
        (critic(gen(x).detach()).mean() - critic(x).mean()).backward()
        opt_critic.step()
        time.sleep(0.002)
        opt_gen.zero_grad()
        (-critic(gen(x)).mean()).backward()
        opt_gen.step()


def resume(
    model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: torch.optim.lr_scheduler.LambdaLR
) -> int:
    """Go on from the checkpoint that the second argument names."""
    state = torch.load(sys.argv[2], weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    torch.set_rng_state(state["rng"]["torch"])
    return int(state["step"])


def wait() -> None:
    print("ready", flush=True)
    while not Path("go").exists():
        time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1] == "late":
        wait()
    ways = {"even": even, "pair": pair}
    ways[sys.argv[1]]() if sys.argv[1] in ways else main(sys.argv[1])
