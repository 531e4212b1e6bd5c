"""Trainings of other people's making that go on until they are ended, for who asks them by name.

``trainer``, ``lit``, ``accelerated``: a framework's loop, as in `frameworks`. ``local``: a loop in
a function, whose names are its own. ``nano``: all names are globals of the script, and so is its
schedule, as in nanoGPT; gradients are scaled and summed up over two micro-batches.
"""

from __future__ import annotations

import itertools
import math
import sys
import tempfile
import time
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from tests.programs.frameworks import SAMPLES, Net, Texts, gpt2, pairs

ENOUGH = 1_000_000


def run_trainer() -> None:
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=ENOUGH,
            per_device_train_batch_size=SAMPLES,
            learning_rate=0.01,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        Trainer(gpt2(), arguments, train_dataset=Texts()).train()


def run_lit() -> None:
    import lightning

    class Lit(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, pair: Any, _: int) -> torch.Tensor:
            return cross_entropy(self.net(pair[0]).flatten(0, 1), pair[1].flatten())

        def configure_optimizers(self) -> Any:
            sgd = torch.optim.SGD(self.parameters(), lr=0.01)
            return [sgd], [torch.optim.lr_scheduler.ExponentialLR(sgd, 0.999999)]

    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    made = lightning.Trainer(
        max_epochs=-1, accelerator="cpu", devices=1, **dict.fromkeys(quiet, False)
    )
    made.fit(Lit(), pairs())


def run_accelerated() -> None:
    from accelerate import Accelerator

    helper = Accelerator(cpu=True)
    network = Net()
    sgd = torch.optim.SGD(network.parameters(), lr=0.01)
    plan = torch.optim.lr_scheduler.ExponentialLR(sgd, 0.999999)
    network, wrapped, feed, planned = helper.prepare(network, sgd, pairs(), plan)
    for _ in range(ENOUGH):
        for x, y in feed:
            error = cross_entropy(network(x).flatten(0, 1), y.flatten())
            helper.backward(error)
            wrapped.step()
            planned.step()
            wrapped.zero_grad()


def run_local() -> None:
    network, feed = Net(), pairs()
    sgd = torch.optim.SGD(network.parameters(), lr=0.01)
    plan = torch.optim.lr_scheduler.ExponentialLR(sgd, 0.999999)
    for _ in range(ENOUGH):
        for x, y in feed:
            error = cross_entropy(network(x).flatten(0, 1), y.flatten())
            sgd.zero_grad()
            error.backward()
            sgd.step()
            plan.step()


if __name__ == "__main__" and sys.argv[1] != "nano":
    torch.manual_seed(0)
    globals()[f"run_{sys.argv[1]}"]()

if __name__ == "__main__":
    model, train_loader = Net(), itertools.cycle(pairs())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    iter_num = 0
    while True:
        lr = 0.001 * (1 + math.cos(iter_num / 1000))
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        for _ in range(2):
            X, Y = next(train_loader)
            loss = cross_entropy(model(X).flatten(0, 1), Y.flatten()) / 2
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        iter_num += 1
        time.sleep(0.005)  # other tests want to run, too
