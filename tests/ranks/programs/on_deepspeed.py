"""A rank of DeepSpeed's ZeRO on CPUs: `on_deepspeed.py STAGE`, with RANK and WORLD_SIZE.

Prints `ready` once the engine is made, and leaves in `told-RANK.json` the loss of each micro-batch,
the rate of each step, and its seconds by its own clock; then stays until `end` is there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import deepspeed
import torch
from torch import nn

STEPS, MICRO, BATCH, LIFETIME_S = 12, 2, 4, 300


def config(stage: int) -> dict[str, object]:
    """What the engine is told."""
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": MICRO,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    }


def main() -> None:
    stage, rank = int(sys.argv[1]), int(os.environ["RANK"])
    torch.manual_seed(0)
    deepspeed.init_distributed("gloo", verbose=False)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config(stage)
    )
    print("ready", flush=True)
    torch.manual_seed(1 + rank)
    told = []
    for _ in range(STEPS):
        began_s, losses = time.perf_counter(), []
        for _ in range(MICRO):
            given = torch.randn(BATCH, 16)
            loss = (engine(given) - given.sum(1, keepdim=True)).square().mean()
            losses.append(loss.item())
            engine.backward(loss)
            engine.step()
        rate = engine.optimizer.param_groups[0]["lr"]
        told.append({"losses": losses, "lr": rate, "seconds": time.perf_counter() - began_s})
    Path(f"told-{rank}.json").write_text(json.dumps(told))
    end_s = time.monotonic() + LIFETIME_S
    while not Path("end").exists() and time.monotonic() < end_s:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
