"""Train a small GPT to add two numbers: a plain PyTorch program that knows nothing of probing.

It needs no download, runs on the CPU (on CUDA where there is one), and leaves `model`,
`optimizer`, `scheduler`, `train_loader` and `trainer` as globals of the script, as training
scripts do. So everything said to it from outside can be said to yours:

    PROBING=1 python examples/train_gpt.py &
    probing list
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

ALPHABET = "\n 0123456789+="


def make_text(sums: int, *, seed: int) -> str:
    """Lines such as ``17 + 25 = 42``, the same for the same seed."""
    draw = random.Random(seed)
    pairs = ((draw.randrange(100), draw.randrange(100)) for _ in range(sums))
    return "".join(f"{a} + {b} = {a + b}\n" for a, b in pairs)


class CharDataset(Dataset[tuple[Tensor, Tensor]]):
    """Every window of a text, and the same window one character later."""

    def __init__(self, text: str, context: int) -> None:
        self.context = context
        self.codes = torch.tensor([ALPHABET.index(char) for char in text])

    def __len__(self) -> int:
        return len(self.codes) - self.context

    def __getitem__(self, start: int) -> tuple[Tensor, Tensor]:
        window = self.codes[start : start + self.context + 1]
        return window[:-1], window[1:]


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Mix each position with those before it."""
        batch, length, dim = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, dim))
        return out


class Block(nn.Module):
    """One layer: attention, then a two-layer perceptron, each added to its input."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attn_norm = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Refine every position."""
        x = x + self.attn(self.attn_norm(x))
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class GPT(nn.Module):
    """A decoder-only transformer over characters."""

    def __init__(self, *, layers: int, dim: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(ALPHABET), dim)
        self.positions = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, len(ALPHABET), bias=False)

    def forward(self, codes: Tensor) -> Tensor:
        """Score every possible next character at every position."""
        places = torch.arange(codes.shape[1], device=codes.device)
        x = self.tokens(codes) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


def make_optimizer(model: nn.Module, *, lr: float, weight_decay: float) -> AdamW:
    """AdamW that lets matrices decay, and leaves biases and norms alone."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    kept = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": kept, "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=lr, betas=(0.9, 0.95))


def make_scheduler(optimizer: AdamW, *, warmup: int, steps: int) -> LambdaLR:
    """A linear warm-up, then a cosine down to a tenth."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        done = min(1.0, (step - warmup) / max(1, steps - warmup))
        return 0.1 + 0.45 * (1.0 + math.cos(math.pi * done))

    return LambdaLR(optimizer, factor)


class Trainer:
    """Runs the training loop.

    Attributes:
        current_step: Steps done.
        is_stopping: Whether it is to end after the step in hand.
        loss: The loss of the last step; kept as a tensor, since a number would have to wait
            for the device.
        grad_norm: The norm of the last step's gradients, before clipping.
        grad_clip: The norm that gradients are clipped to.
        pause: Seconds to rest after each step.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: AdamW,
        scheduler: LambdaLR,
        train_loader: DataLoader[tuple[Tensor, Tensor]],
        *,
        device: torch.device,
        checkpoint: Path,
        checkpoint_every: int,
        log_every: int,
        grad_clip: float,
        pause: float = 0.0,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.train_loader = train_loader
        self.device = device
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.log_every = log_every
        self.grad_clip = grad_clip
        self.pause = pause
        self.current_step = 0
        self.is_stopping = False
        self.loss = torch.tensor(math.nan)
        self.grad_norm = torch.tensor(math.nan)

    def train(self, steps: int) -> None:
        """Train until `current_step` is `steps`, or until told to stop; 0 steps mean for ever."""
        self.model.train()
        since = time.perf_counter()
        for inputs, targets in self._batches():
            self._step(inputs, targets)
            if self.current_step % self.log_every == 0:
                now = time.perf_counter()
                self._log((now - since) / self.log_every)
                since = now
            if self.checkpoint_every and self.current_step % self.checkpoint_every == 0:
                self.save_checkpoint()
            if self.is_stopping or self.current_step == steps:
                return
            if self.pause:
                time.sleep(self.pause)

    def stop(self, signum: int, _frame: FrameType | None) -> None:
        """Have the training end after the step in hand: a handler for Ctrl-C.

        An exception out of nowhere could leave a DataLoader worker in the middle of handing
        over a batch. The second Ctrl-C raises it all the same.
        """
        self.is_stopping = True
        signal.signal(signum, signal.default_int_handler)

    def save_checkpoint(self) -> None:
        """Write the checkpoint, whole or not at all."""
        unfinished = self.checkpoint.with_suffix(".pt.new")
        state = {
            "step": self.current_step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, unfinished)
        os.replace(unfinished, self.checkpoint)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches without end, in a new order each time around."""
        while True:
            for inputs, targets in self.train_loader:
                yield inputs.to(self.device), targets.to(self.device)

    def _step(self, inputs: Tensor, targets: Tensor) -> None:
        """Learn from one batch."""
        scores = self.model(inputs)
        loss = functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip)
        self.optimizer.step()
        self.scheduler.step()
        self.loss = loss.detach()
        self.current_step += 1

    def _log(self, seconds: float) -> None:
        """Print one line on how it goes."""
        print(
            f"step {self.current_step}  loss {self.loss.item():.4f}  {seconds * 1e3:.1f} ms/step",
            flush=True,
        )


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--steps", type=int, default=0, help="stop after so many steps; 0: never (default)")
    add("--layers", type=int, default=6)
    add("--dim", type=int, default=256)
    add("--heads", type=int, default=4)
    add("--context", type=int, default=128)
    add("--batch", type=int, default=8)
    add("--workers", type=int, default=2, help="DataLoader worker processes")
    add("--threads", type=int, default=0, help="torch threads; 0: as many as torch likes")
    add("--lr", type=float, default=1e-3)
    add("--weight-decay", type=float, default=0.1)
    add("--grad-clip", type=float, default=1.0)
    add("--warmup", type=int, default=100, help="steps until the learning rate is reached")
    add("--pause", type=float, default=0.0, help="seconds to rest after each step")
    add("--seed", type=int, default=0)
    add("--log-every", type=int, default=10, help="steps from one printed line to the next")
    add("--checkpoint-every", type=int, default=100, help="steps; 0: write none")
    add("--out", type=Path, default=Path(), metavar="DIR", help="where checkpoint.pt goes")
    return parser.parse_args()


if __name__ == "__main__":
    options = parse_options()
    torch.manual_seed(options.seed)
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_loader = DataLoader(
        CharDataset(make_text(10_000, seed=options.seed), options.context),
        batch_size=options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    model = GPT(
        layers=options.layers, dim=options.dim, heads=options.heads, context=options.context
    ).to(device)
    optimizer = make_optimizer(model, lr=options.lr, weight_decay=options.weight_decay)
    scheduler = make_scheduler(optimizer, warmup=options.warmup, steps=options.steps or 10_000)
    trainer = Trainer(
        model,
        optimizer,
        scheduler,
        train_loader,
        device=device,
        checkpoint=options.out / "checkpoint.pt",
        checkpoint_every=options.checkpoint_every,
        log_every=options.log_every,
        grad_clip=options.grad_clip,
        pause=options.pause,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGINT, trainer.stop)
    trainer.train(options.steps)
    print(f"stopped at step {trainer.current_step}")
