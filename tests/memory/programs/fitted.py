"""Trains one of several models, for predictions of its memory; or measures the memory of a step.

``fitted.py WAY`` trains for ever, prints the loss of each step, and ``ready`` after some;
``fitted.py WAY steps N`` ends after N; ``fitted.py WAY measure BATCH SEQ LAYERS`` prints the most
bytes that the CPU's allocator handed out in a step of that shape, as torch.profiler counts them.
"""

from __future__ import annotations

import gc
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

_ROOT = Path(__file__).resolve().parents[3]
_TOKENS, _DIM = 512, 128


class Block(nn.Module):
    """A perceptron with dropout, which is computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_DIM)
        self.up = nn.Linear(_DIM, 4 * _DIM)
        self.down = nn.Linear(4 * _DIM, _DIM)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Add the perceptron's result."""
        self.calls += 1
        out: Tensor = x + functional.dropout(self.down(self.up(self.norm(x)).relu()), 0.1)
        return out


class Tied(nn.Module):
    """A model that recomputes its blocks, and whose head is its embedding; called by keywords."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_hidden_layers=layers)
        self.tokens = nn.Embedding(_TOKENS, _DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(_DIM, _TOKENS, bias=False)
        self.head.weight = self.tokens.weight
        self.seen: list[float] = []

    def forward(self, *, ids: Tensor) -> dict[str, Tensor]:
        """Score the next token."""
        x = self.tokens(ids)
        for block in self.blocks[: self.config.num_hidden_layers]:
            x = checkpoint(block, x, use_reentrant=False)
        return {"scores": self.head(x)}


class Asking(nn.Module):
    """A model whose way depends on the value of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Scale the result down when it is large."""
        out: Tensor = self.layer(x)
        return out / 2 if out.abs().max().item() > 1e6 else out


def tied(batch: int, seq: int, layers: int) -> Callable[[], Tensor]:
    """Two micro-batches with shifted labels; gradients are let go of after the step."""
    model = Tied(layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(_TOKENS, (batch, seq))

    def step() -> Tensor:
        for _ in range(2):
            scores = model(ids=ids)["scores"][:, :-1].contiguous()
            loss = functional.cross_entropy(scores.view(-1, _TOKENS), ids[:, 1:].reshape(-1))
            (loss / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def gpt(batch: int, seq: int, layers: int) -> Callable[[], Tensor]:
    """The bundled example."""
    sys.path.append(str(_ROOT / "examples"))
    script = importlib.import_module("train_gpt")
    model = script.GPT(layers=layers, dim=256, heads=4, context=128)
    optimizer = script.make_optimizer(model, lr=1e-3, weight_decay=0.1)
    codes = torch.randint(len(script.ALPHABET), (batch, seq))

    def step() -> Tensor:
        loss = functional.cross_entropy(model(codes).flatten(0, 1), codes.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def cnn(batch: int, _seq: int, _layers: int) -> Callable[[], Tensor]:
    """The residual network of the benchmarks."""
    sys.path.append(str(_ROOT / "tests" / "benchmarks" / "programs"))
    model = importlib.import_module("cnn").make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def regression(batch: int, _seq: int, _layers: int) -> Callable[[], Tensor]:
    """A perceptron that learns numbers, each step with a batch of its own."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 2048))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> Tensor:
        x, wanted = torch.randn(batch, 256), torch.randn(batch, 2048)
        loss = functional.mse_loss(model(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def keeping(batch: int, _seq: int, _layers: int) -> Callable[[], Tensor]:
    """What the model returned in the last step is kept through the next; so is all data."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4096))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data, labels = torch.randn(8192, 64), torch.randint(4096, (batch,))
    last: dict[str, Tensor] = {}

    def step() -> Tensor:
        last["scores"] = model(data[torch.randint(8192, (batch,))])
        loss = functional.cross_entropy(last["scores"], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        last["before"] = last["scores"].detach()
        return loss.detach()

    return step


class Autoencoder(nn.Module):
    """A variational autoencoder, which returns three tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.mean, self.spread = (
            nn.Linear(784, 400),
            nn.Linear(400, 20),
            nn.Linear(400, 20),
        )
        self.widen, self.decode = nn.Linear(20, 400), nn.Linear(400, 784)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw from what an image is encoded to, and decode that."""
        hidden = functional.relu(self.encode(x))
        mean, spread = self.mean(hidden), self.spread(hidden)
        drawn = mean + torch.randn_like(mean) * (spread * 0.5).exp()
        image = torch.sigmoid(self.decode(functional.relu(self.widen(drawn))))
        return image, mean, spread


def vae(batch: int, _seq: int, _layers: int) -> Callable[[], Tensor]:
    """A loss of two sums, and the image of the last step is kept through the next."""
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters())
    last: dict[str, Any] = {}

    def step() -> Tensor:
        x = last["x"] = torch.rand(batch, 784)
        image, mean, spread = last["result"] = model(x)
        rebuilt = functional.binary_cross_entropy(image, x, reduction="sum")
        loss = rebuilt - 0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Around(torch.optim.Optimizer):
    """Steps another optimizer, as Lookahead does."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure: Any = None) -> Any:
        """Have the other one step."""
        return self.inner.step(closure)


def around(batch: int, _seq: int, _layers: int) -> Callable[[], Tensor]:
    """An optimizer around another one."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 2048))
    optimizer = Around(torch.optim.Adam(model.parameters()))
    last: dict[str, Any] = {}

    def step() -> Tensor:
        x = last["x"] = torch.randn(batch, 256)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def beside(batch: int, _seq: int, _layers: int) -> Callable[[], Tensor]:
    """A small critic beside a model, each with an optimizer; a step begins with a long wait."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    critic = nn.Linear(256, 1)
    optimizers = torch.optim.Adam(model.parameters()), torch.optim.Adam(critic.parameters())

    def step() -> Tensor:
        time.sleep(0.05)  # for data: what is asked is mostly asked meanwhile
        out = model(torch.randn(batch, 256))
        losses = out.square().mean(), critic(out.detach()[: batch // 4]).square().mean()
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return losses[0].detach()

    return step


def in_backward(batch: int, _seq: int, _layers: int) -> Callable[[], Tensor]:
    """An optimizer for each parameter, which steps as its gradient is there and lets go of it."""
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 512))
    optimizers = {p: torch.optim.AdamW([p], foreach=False) for p in model.parameters()}
    last: dict[str, Any] = {}

    def update(parameter: Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad()  # type: ignore[index]

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(update)

    def step() -> Tensor:
        x = last["x"] = torch.randn(batch, 256)
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    return step


def by_hand(batch: int, _seq: int, _layers: int) -> Callable[[], Tensor]:
    """Gradient descent with momentum, written by hand."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 2048))
    momentum = [torch.zeros_like(p) for p in model.parameters()]
    labels = torch.randint(2048, (batch,))

    def step() -> Tensor:
        loss = functional.cross_entropy(model(torch.randn(batch, 256)), labels)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, m, g in zip(model.parameters(), momentum, gradients, strict=True):
                p.sub_(0.01 * m.mul_(0.9).add_(g))
        return loss.detach()

    return step


def asking(batch: int, _seq: int, _layers: int) -> Callable[[], Tensor]:
    """A model that reads a number out of a tensor."""
    model = Asking()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(batch, 8)

    def step() -> Tensor:
        loss = functional.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def bare(batch: int, _seq: int, _layers: int) -> Callable[[], Tensor]:
    """Two tensors that are learnt, and no module."""
    users, items = torch.randn(batch, 8).requires_grad_(), torch.randn(16, 8).requires_grad_()
    optimizer = torch.optim.Adam([users, items])
    ratings = torch.rand(batch, 16)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(users @ items.T, ratings)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


WAYS: dict[str, tuple[Callable[[int, int, int], Callable[[], Tensor]], tuple[int, int, int]]] = {
    "tied": (tied, (4, 64, 3)),
    "gpt": (gpt, (4, 64, 6)),
    "cnn": (cnn, (16, 0, 0)),
    "regression": (regression, (512, 0, 0)),
    "keeping": (keeping, (256, 0, 0)),
    "vae": (vae, (256, 0, 0)),
    "by_hand": (by_hand, (512, 0, 0)),
    "beside": (beside, (64, 0, 0)),
    "around": (around, (64, 0, 0)),
    "in_backward": (in_backward, (64, 0, 0)),
    "asking": (asking, (4, 0, 0)),
    "bare": (bare, (64, 0, 0)),
}


def measure(step: Callable[[], Tensor]) -> int:
    """The most bytes handed out at one time in a step, with those that were there before it.

    The profiler misses that what was there before it is freed. So the gradients, which alone come
    and go, are freed first, and the second step under the profiler is like any other.
    """
    for _ in range(2):
        step()
    for thing in _tensors():
        if thing.is_leaf:
            thing.grad = None
    there = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in _tensors()}
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
        step()
    now = most = 0
    results: Any = profile.profiler
    for event in results.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return sum(there.values()) + most


def _tensors() -> list[Tensor]:
    """Every tensor that Python knows."""
    return [thing for thing in gc.get_objects() if type(thing) in {Tensor, nn.Parameter}]


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make, usual = WAYS[sys.argv[1]]
    if sys.argv[2:3] == ["measure"]:
        batch, seq, layers = map(int, sys.argv[3:6])
        print(measure(make(batch, seq, layers)))
    else:
        step = make(*usual)
        number = int(sys.argv[3]) if sys.argv[2:3] == ["steps"] else 0
        done = 0
        while not number or done < number:
            print(float(step()).hex(), flush=True)
            done += 1
            if done == 3:
                print("ready", flush=True)
