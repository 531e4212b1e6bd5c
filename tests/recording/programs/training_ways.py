"""Trains a small language model in the way that its argument names, and ends.

One line of JSON per step says what the script itself knows of it; the last one has a digest of the
final parameters. Ways over several ranks read RANK, WORLD_SIZE and, for the file by which the ranks
meet, MEETING.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

STEPS = 6
BACKEND = "inductor" if shutil.which("g++") else "aot_eager"
SAMPLES, LENGTH, WORDS, WIDTH = 4, 8, 32, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, around: Callable[..., Tensor] | None = None) -> None:
        super().__init__()
        self.around = around
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x) if self.around is None else self.around(block, x)
        return self.head(x)


class BrokenNet(Net):
    """One whose graph breaks between any two blocks."""

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
            torch._dynamo.graph_break()
        return self.head(x)


def make(net: type[Net] = Net, around: Callable[..., Tensor] | None = None) -> Net:
    torch.manual_seed(0)
    return net(around)


def batches(count: int) -> DataLoader[tuple[Tensor, ...]]:
    draw = torch.Generator().manual_seed(int(os.environ.get("RANK", "0")))
    tokens = torch.randint(WORDS, (count * SAMPLES, LENGTH + 1), generator=draw)
    return DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=SAMPLES)


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(model(x).flatten(0, 1).float(), y.flatten())


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def whole(parameter: Tensor) -> Tensor:
    tensor = parameter.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def train(
    model: Any,
    loss_of: Callable[[nn.Module, Tensor, Tensor], Tensor] = loss_of,
    *,
    parts: int = 1,
    scaler: torch.amp.GradScaler | None = None,
    clip: Callable[[], Tensor] | None = None,
) -> None:
    """One optimizer step per `parts` batches, and what the script knows of each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)
    losses: list[float] = []
    for x, y in batches(STEPS * parts):
        loss = loss_of(model, x, y)
        losses.append(loss.item())
        scaler.scale(loss / parts if parts > 1 else loss).backward()
        if len(losses) < parts:
            continue
        scaler.unscale_(optimizer)
        norm = clip_grad_norm_(model.parameters(), 1.0) if clip is None else clip()
        grad_norm = whole(norm).item()
        lr = optimizer.param_groups[0]["lr"]
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad()
        facts = {
            "loss": sum(losses) / parts,
            "lr": lr,
            "micro_batches": parts,
            "grad_norm": grad_norm,
        }
        tell(**facts, samples=parts * SAMPLES, tokens=parts * SAMPLES * LENGTH)
        losses.clear()
    end(model)


def end(model: nn.Module, **facts: Any) -> None:
    """Print what the parameters have become, each bit of them."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode() + whole(parameter).contiguous().numpy().tobytes())
    tell(digest=digest.hexdigest(), **facts)


def accumulated() -> None:
    train(make(), parts=3)


def autocast() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(model, x, y)

    train(make(), loss)


def scaled() -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.float16):
            return loss_of(model, x, y)

    train(make(), loss, parts=2, scaler=torch.amp.GradScaler("cpu", init_scale=256.0))


def checkpoint_reentrant() -> None:
    train(make(around=lambda block, x: checkpoint(block, x, use_reentrant=True)))


def checkpoint_saved() -> None:
    train(make(around=lambda block, x: checkpoint(block, x, use_reentrant=False)))


def checkpoint_wrapped() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = make()
    model.blocks = nn.ModuleList(checkpoint_wrapper(block) for block in model.blocks)
    train(model)


def compiled(net: type[Net] = Net, backend: str = BACKEND) -> None:
    model: Any = torch.compile(make(net), backend=backend)
    train(model)
    tell_compiled()


def compiled_to_aten() -> None:
    compiled(backend="aot_eager")


def compiled_broken() -> None:
    compiled(BrokenNet)


def compiled_in_place() -> None:
    model = make()
    for block in model.blocks:
        block.compile(backend=BACKEND)
    train(model)
    tell_compiled()


def tell_compiled() -> None:
    """What torch.compile has done: graphs, breaks, frames and compilations once more."""
    counters = torch._dynamo.utils.counters
    tell(
        graphs=counters["stats"]["unique_graphs"],
        breaks=sum(counters["graph_break"].values()),
        frames=dict(counters["frames"]),
        again=sum(counters["recompiles"].values()),
        limits=sum(counters["recompile_limit"].values()),
    )


def meet() -> None:
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['MEETING']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def ddp() -> None:
    meet()
    train(nn.parallel.DistributedDataParallel(make()), parts=2)
    torch.distributed.destroy_process_group()


def ddp_compiled(backend: str = BACKEND) -> None:
    meet()
    model: Any = torch.compile(nn.parallel.DistributedDataParallel(make()), backend=backend)
    train(model)
    tell_compiled()
    torch.distributed.destroy_process_group()


def ddp_compiled_to_aten() -> None:
    ddp_compiled("aot_eager")


def fsdp1() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    meet()
    model = FullyShardedDataParallel(make(), device_id=torch.device("cpu"), use_orig_params=True)
    train(model, clip=lambda: model.clip_grad_norm_(1.0))
    torch.distributed.destroy_process_group()


def fsdp1_unclipped() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    meet()
    model = FullyShardedDataParallel(make(), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for x, y in batches(STEPS):
        loss_of(model, x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
    end(model)
    torch.distributed.destroy_process_group()


def fsdp2() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    meet()
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    model = make()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, parts=2)
    # What is sharded refers to its process group in a circle. A group that lives until the process
    # ends can abort it, agent or not: "terminate called without an active exception", see
    # https://github.com/pytorch/pytorch/issues/190489.
    del model, mesh, block
    gc.collect()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
