"""The bundled example's GPT and trainer, for programs that step it themselves."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

_EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
_CONTEXT = 128


def make_stepper(*, workers: int = 2) -> Callable[[], None]:
    """What runs one step of the example with its own defaults: 6 layers, d=256, DataLoader."""
    sys.path.append(str(_EXAMPLES))
    script = importlib.import_module("train_gpt")
    torch.manual_seed(0)
    loader: DataLoader[Any] = DataLoader(
        script.CharDataset(script.make_text(10_000, seed=0), _CONTEXT),
        batch_size=8,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    model = script.GPT(layers=6, dim=256, heads=4, context=_CONTEXT)
    optimizer = script.make_optimizer(model, lr=1e-3, weight_decay=0.1)
    trainer = script.Trainer(
        model,
        optimizer,
        script.make_scheduler(optimizer, warmup=100, steps=10_000),
        loader,
        device=torch.device("cpu"),
        checkpoint=Path("checkpoint.pt"),
        checkpoint_every=0,
        log_every=0,
        grad_clip=1.0,
    )
    trainer.model.train()
    batches = trainer._batches()

    def step() -> None:
        trainer._step(*next(batches))

    return step
