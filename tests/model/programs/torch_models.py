"""Trains a model of the kind that its argument names, for ever, and prints what is true of it.

The line `oracle` holds the number of parameters by `sum(p.numel())` and the operations of a forward
by torch's own FlopCounterMode, by module. The step must compute the same whoever watches: the
program ends with an error when an output is not bit-equal to the first one, when an input outlives
its step, or when something has to be compiled again.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gc
import json
import runpy
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

EXAMPLE = Path(__file__).parents[3] / "examples" / "train_gpt.py"
compilations: list[int] = []


def gpt() -> tuple[nn.Module, Tensor]:
    names = runpy.run_path(str(EXAMPLE))
    model = names["GPT"](layers=2, dim=32, heads=2, context=16)
    model.head.weight = model.tokens.weight
    return model, torch.randint(0, 13, (4, 16))


def cnn() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, (3, 1), groups=4, bias=False),
        nn.ConvTranspose2d(16, 4, 2, stride=2),
        nn.Flatten(),
        nn.LazyLinear(10),
    )
    x = torch.randn(2, 3, 16, 16)
    model(x)
    return model, x


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 12)
        self.lstm = nn.LSTM(12, 10, num_layers=2, bidirectional=True, proj_size=6)
        self.gru = nn.GRU(12, 8, batch_first=True)
        self.tags = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.tags(self.gru(self.lstm(self.words(x))[0])[0])


def lstm() -> tuple[nn.Module, Tensor]:
    return Tagger(), torch.randint(0, 20, (7, 3))


@dataclasses.dataclass
class Output:
    logits: Tensor
    extra: Any = None


class Pair(NamedTuple):
    left: Tensor
    right: dict[str, Tensor | None]


class Split(nn.Module):
    def forward(self, x: Tensor, *, scale: Tensor) -> Pair:
        return Pair(x * scale, {"half": x[:, :2], "none": None})


class Odd(nn.Module):
    """Shared modules, named inputs, results of every form, an error that is caught."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.again = nn.Sequential(self.shared, nn.Identity())
        self.split = Split()
        self.fails = nn.Linear(3, 3)
        self.unused = nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("places", torch.zeros(5, dtype=torch.int64))

    def forward(self, batch: dict[str, Tensor]) -> Output:
        x = self.again(self.shared(batch["x"]))
        copy.deepcopy(self.split)  # takes along what hangs on it
        try:
            nn.Sequential(self.fails)(x)
        except RuntimeError:
            left, right = self.split(x, scale=batch["scale"])
        return Output(logits=left, extra=[right["half"], "text"])


def odd() -> tuple[nn.Module, Any]:
    return Odd(), {"x": torch.randn(3, 4), "scale": torch.ones(1)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x))


def counted(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    compilations.append(len(graph.graph.nodes))
    return graph.forward


def compiled() -> tuple[Any, Tensor]:
    return torch.compile(Net(), backend=counted), torch.randn(3, 4)


def partly_compiled() -> tuple[nn.Module, Tensor]:
    net: Any = Net()
    net.first = torch.compile(net.first, backend=counted)
    net.last.compile(backend=counted)
    return nn.Sequential(net, nn.Linear(2, 2)), torch.randn(3, 4)


def broken_graph() -> tuple[Any, Tensor]:
    """A compiled function that calls a model in the middle of a break."""
    net = Net()

    def run(x: Tensor) -> Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return net(y)

    fast: Any = torch.compile(run, backend=counted)
    fast.parameters = net.parameters
    return fast, torch.randn(3, 4)


def wrapped() -> tuple[nn.Module, Tensor]:
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return nn.parallel.DistributedDataParallel(Net()), torch.randn(3, 4)


def scripted() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(torch.jit.script(Net()), nn.Linear(2, 2)), torch.randn(3, 4)


def fast_path() -> tuple[nn.Module, Tensor]:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.Sequential(layer, nn.Linear(16, 3)).eval(), torch.randn(2, 5, 16)


def result_of(output: Any) -> Tensor:
    output = output.logits if isinstance(output, Output) else output
    return output[0] if isinstance(output, tuple) else output


def copy_of(value: Any) -> Any:
    return {k: copy_of(v) for k, v in value.items()} if isinstance(value, dict) else value.clone()


def step(model: Any, example: Any, first: Tensor, optimizer: torch.optim.Optimizer) -> None:
    if isinstance(example, dict):
        with contextlib.suppress(KeyError):
            model({})
    given = copy_of(example)
    gone = [weakref.ref(t) for t in (given.values() if isinstance(given, dict) else [given])]
    with torch.set_grad_enabled(getattr(model, "training", True)):
        result = result_of(model(given))
    assert torch.equal(result, first), "the output has changed"
    if result.requires_grad:
        result.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    del given, result
    if any(ref() is not None for ref in gone):
        gc.collect()  # a cycle of torch's own is not ours to answer for
        kept = [gc.get_referrers(ref()) for ref in gone if ref() is not None]
        assert not kept, f"an input was kept, by {[[type(x) for x in refs] for refs in kept]}"


def print_oracle(model: Any, example: Any) -> None:
    # Only this kernel of attention is counted on every device.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(copy_of(example))
    flops = {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items()}
    numbers = sum(p.numel() for p in model.parameters())
    print("oracle", json.dumps({"parameters": numbers, "flops": flops}), flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    kind, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    model, example = globals()[kind]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    if kind in ("gpt", "cnn", "lstm", "odd"):
        print_oracle(model, example)
    with torch.set_grad_enabled(getattr(model, "training", True)):
        first = result_of(model(copy_of(example))).detach()
    for _ in range(3):
        step(model, example, first, optimizer)
    known = len(compilations)
    print("ready", flush=True)
    done = 0
    while not steps or done < steps:
        step(model, example, first, optimizer)
        assert len(compilations) == known, "something was compiled again"
        done += 1
        time.sleep(0.002)
    print("done", flush=True)
    time.sleep(600)
