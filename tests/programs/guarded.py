"""A training that is guarded, alone or on several ranks; its argument says of which kind.

``plain``; ``two``: of two models with an optimizer each; ``accumulated``: two micro-batches a step;
``amp``: autocast to bfloat16 and a gradient scaler, ``amp_fused`` with a fused optimizer that
unscales the gradients itself, ``amp_foreach`` with one of all parameters at once; ``ddp``,
``fsdp``: on ranks; ``once``: on ranks that begin one collective before they train, each by itself.
With ``late`` behind it, it waits for a file ``go`` before its first step.
Each line of ``log-RANK.txt`` is of a step: its number, the rate that it had, and the sum of all
parameters after it. While ``poison[0]`` is not 0 it is counted down, and a step's input is NaN;
``caught`` has what the training caught.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

KIND = sys.argv[1]
IS_AMP = KIND.startswith("amp")
WAY: dict[str, Any] = {way: True for way in ("fused", "foreach") if KIND.endswith(way)}
poison = [0]
caught: list[str] = []


def build() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    if KIND == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if KIND == "fsdp":
        from torch.distributed.fsdp import fully_shard

        fully_shard(model)
    return model


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16, enabled=IS_AMP):
        return model(x).square().mean()


def main() -> None:
    if KIND in {"ddp", "fsdp", "once"}:
        torch.distributed.init_process_group("gloo")
        begin: dict[str, Any] = {
            "ddp": torch.distributed.monitored_barrier,  # gloo counts it otherwise on each rank
            "once": lambda: torch.distributed.all_reduce(torch.zeros(1)),
        }
        begin.get(KIND, lambda: None)()
    models = [build() for _ in range(2 if KIND == "two" else 1)]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(model.parameters(), lr=0.01, **WAY) for model in models
    ]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizers[0], step_size=10**9)
    scaler = torch.amp.GradScaler("cpu", enabled=IS_AMP, growth_interval=10**9)
    step = 0
    print("ready", flush=True)
    while "late" in sys.argv[2:] and not Path("go").exists():
        time.sleep(0.01)
    with Path(f"log-{os.environ.get('RANK', '0')}.txt").open("a", buffering=1) as log:
        while True:
            x = torch.randn(8, 4)
            if poison[0]:
                poison[0] -= 1
                x.fill_(torch.nan)
            for turn in range(2 if KIND == "accumulated" else 1):
                # the NaN is in the first micro-batch only, and in the first model only
                loss = loss_of(models[0], torch.zeros(8, 4) if turn else x)
                scaler.scale(loss).backward()
            for model in models[1:]:
                loss_of(model, torch.randn(8, 4)).backward()
            for optimizer in optimizers:
                try:
                    scaler.step(optimizer)
                except FloatingPointError as error:
                    caught.append(f"{type(error).__name__}: {error}")
            scaler.update()
            scheduler.step()
            for optimizer in optimizers:
                optimizer.zero_grad()
            step += 1
            rate = optimizers[0].param_groups[0]["lr"]
            parts = [_here(p).double().sum().item() for p in models[0].parameters()]
            log.write(f"{step} {rate!r} {sum(parts)!r}\n")
            time.sleep(0.01)


def _here(parameter: torch.Tensor) -> torch.Tensor:
    """What this rank has of a parameter."""
    local = getattr(parameter, "_local_tensor", parameter)
    return local.detach()


if __name__ == "__main__":
    main()
