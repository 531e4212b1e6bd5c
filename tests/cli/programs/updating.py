"""Trains a small model; the argument says what becomes of its gradients, until somebody ends it.

`accumulates` adds up four micro-batches, `zeroed` sets them to zero between those, `skips` leaves
out the steps of most batches, `attacks` asks for the gradient of its inputs first, `denormal` lets
Adam's moments decay for ever, which `flushed` has the processor take for 0, `rounded` has weights
that the steps cannot change, `fine` has Adam with a rate that most cannot tell, `coarse` with one
that they can, `kept` adds what was rounded away to the next update, `stale` has an optimizer of
another model, `scheduled` a scheduler that steps first, `sizes` a loss of targets of another size.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Iterator

import torch
from torch import nn

PAUSE_S = 0.004
MICRO_BATCHES = 4
RATES = {"rounded": 1e-7, "fine": 1e-4, "coarse": 1e-2, "kept": 1e-4}
"""Of weights in half precision."""
WORDS, SEEN = 2048, 8
WAY = sys.argv[1]


class SGD(torch.optim.Optimizer):
    """As torch's, but keeps what the weights' type cannot tell of each update."""

    def __init__(self, parameters: Iterator[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = self.state[parameter].get("kept", 0.0)
                wanted = parameter.float() - group["lr"] * parameter.grad.float() + kept
                parameter.copy_(wanted)
                self.state[parameter]["kept"] = wanted - parameter.float()


class Words(nn.Module):
    """Of whose embeddings few have gradients after the first steps."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.head = nn.Linear(16, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(words))


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs and what is to come of them."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(16, generator=generator)
    while True:
        inputs = torch.randn(32, 16, generator=generator)
        yield inputs, (inputs @ weights).unsqueeze(-1)


def step_of_words(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    words = torch.arange(WORDS if step < 3 else SEEN)
    loss = (model(words) - words.unsqueeze(-1) / WORDS).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_flush_denormal(WAY == "flushed")
    is_of_words = WAY in {"denormal", "flushed"}
    width = 64 if WAY in {"fine", "coarse"} else 16
    layers = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, 1))
    model = Words() if is_of_words else layers
    if WAY in RATES:
        model = model.bfloat16()
    trained = copy.deepcopy(model) if WAY == "stale" else model
    if is_of_words:
        optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), betas=(0.6, 0.999))
    elif WAY in {"fine", "coarse"}:
        optimizer = torch.optim.AdamW(trained.parameters(), lr=RATES[WAY])
    else:
        kind = SGD if WAY == "kept" else torch.optim.SGD
        optimizer = kind(trained.parameters(), lr=RATES.get(WAY, 1e-2))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1.0)
    data = batches()
    print("ready", flush=True)
    step = 0
    while True:
        if WAY == "scheduled":
            scheduler.step()
        if is_of_words:
            step_of_words(model, optimizer, step)
        else:
            step_of_batches(model, optimizer, data, step)
        step += 1
        print("step", step, flush=True)
        time.sleep(PAUSE_S)


def step_of_batches(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Iterator[tuple[torch.Tensor, torch.Tensor]],
    step: int,
) -> None:
    passes = MICRO_BATCHES if WAY in {"accumulates", "zeroed"} else 1
    if WAY == "skips":
        passes = 3 + step * 7 % 5
    for number in range(passes):
        inputs, targets = next(data)
        dtype = next(model.parameters()).dtype
        inputs, targets = inputs.to(dtype), targets.to(dtype)
        if WAY == "attacks":
            inputs.requires_grad_()
            (model(inputs) - targets).square().mean().backward()
            inputs = (inputs + 0.01 * inputs.grad.sign()).detach()  # type: ignore[union-attr]
        if number == 0 or WAY in {"zeroed", "skips"}:
            optimizer.zero_grad()
            model.zero_grad()
        if WAY == "sizes":
            loss = nn.functional.mse_loss(model(inputs), targets.squeeze(-1))
        else:
            loss = (model(inputs) - targets).square().mean()
        (loss / MICRO_BATCHES if WAY == "zeroed" else loss).backward()
    optimizer.step()


main()
