"""Runs backward passes of one kind per argument, and compares their gradients with those of torch.

Each kind is a function that makes a model and a loss. Its gradients with the recorder and without
must be bit-equal. Prints the times at which modules slept in their backward pass, as JSON, then
`ready`; then the program waits to be ended.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

PLAIN_CALL = nn.Module._wrapped_call_impl
NAP_S = 0.02
STEPS = 3

slept: list[tuple[str, int, int]] = []


class _Nap(torch.autograd.Function):
    """The identity, whose backward pass takes its time and says when."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str) -> Tensor:
        ctx.name = name
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        start = time.time_ns()
        time.sleep(NAP_S)
        slept.append((ctx.name, start, time.time_ns()))
        return grad.clone(), None


class Nap(nn.Module):
    """A leaf that sleeps in its backward pass."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return _Nap.apply(x * self.weight, self.name)


class Both(nn.Module):
    """Two branches of one input, the first of which is no module, and a sum."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.left = Nap(f"{prefix}.left")
        self.right = Nap(f"{prefix}.right")

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh() + self.left(x) + self.right(x)


class Tree(nn.Module):
    """Modules in sequence, in branches, and in one another."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Nap("first")
        self.both = Both("both")
        self.inner = nn.Sequential(nn.Sequential(Nap("inner.0.0")))
        self.again = nn.Sequential(Nap("again.0"))
        self.last = Nap("last")

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.again(self.both(self.first(x))))
        return self.last(self.inner(x) + x).sin()


def tree() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    return Tree(), lambda model: model(torch.ones(2, 3)).sum().backward()


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.act = nn.ReLU(inplace=True)
        self.second = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.act(self.first(x)))


def example() -> Tensor:
    return torch.linspace(-1, 1, 12).reshape(4, 3)


def in_place() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    return Layers(), lambda model: model(example()).square().sum().backward()


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x).tanh())


def shared() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    return Shared(), lambda model: model(example()).sum().backward()


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.layers = Layers()
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.layers, x, use_reentrant=self.reentrant)
        return out


def reentrant() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    x = example().requires_grad_()
    return Checkpointed(reentrant=True), lambda model: model(x).sum().backward()


def recomputed() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    return Checkpointed(reentrant=False), lambda model: model(example()).sum().backward()


def frozen() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    model = nn.Sequential(Layers(), Layers())
    model[0].requires_grad_(requires_grad=False)
    return model, lambda model: model(example()).sum().backward()


def retained() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    def run(model: nn.Module) -> None:
        loss = model(example()).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    return Layers(), run


def several_losses() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    def run(model: nn.Module) -> None:
        out = model(example())
        out[:, 0].sum().backward(retain_graph=True)
        out[:, 1].sum().backward()

    return Layers(), run


def twice() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    """A gradient penalty: the backward pass of a backward pass."""

    def run(model: nn.Module) -> None:
        x = example().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sin().sum(), x, create_graph=True)
        slope.square().sum().backward()

    return Layers(), run


class ManyOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 5, batch_first=True)
        self.split = nn.Linear(5, 6)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        _, (hidden, _) = self.rnn(x[None])
        left, right = self.split(hidden).chunk(2, dim=-1)
        return {"left": left, "right": right}


def many_outputs() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    return ManyOutputs(), lambda model: model(example())["right"].sum().backward()


class Cell(nn.Module):
    """Takes tensors in containers of containers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Sequence[Any] = (), state: Sequence[Any] = ()) -> Tensor:
        found = [*inputs, *state][0]
        return torch.stack([*found]).sum(0) * self.weight


class Holder(nn.Module):
    """Goes on in its backward pass after its cell has ended."""

    def __init__(self, *, by_name: bool) -> None:
        super().__init__()
        self.cell = Cell()
        self.by_name = by_name

    def forward(self, x: Tensor) -> Tensor:
        x = (x * self.cell.weight).tanh()
        out: Tensor = self.cell(state=((x, x.sin()),)) if self.by_name else self.cell([[x]])
        return out.cos()


def deep_inputs() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    """Tensors that are given in containers, two in one another."""
    model = nn.Sequential(Holder(by_name=False), Holder(by_name=True))
    return model, lambda model: model(example()).sum().backward()


def user_hooks() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    """Hooks of the user's, which change gradients, stay what they are."""

    def run(model: Any) -> None:
        x = model.first(example())
        x.register_hook(lambda grad: grad * 2)
        out = model.second(x)
        out.register_hook(lambda grad: grad + 1)
        out.sum().backward()

    return Layers(), run


def compiled() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    def run(model: nn.Module) -> None:
        torch.compile(model, backend="aot_eager")(example()).sum().backward()

    return Layers(), run


def compiled_backward() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    """The backward pass is compiled as a whole, and nothing of ours breaks its graph."""
    from torch._dynamo import compiled_autograd, utils

    def run(model: nn.Module) -> None:
        with compiled_autograd._enable(torch.compile(backend="eager")):
            model(example()).square().sum().backward()
        assert not utils.counters["graph_break"]
        assert utils.counters["compiled_autograd"]["captures"] > 0

    return Layers(), run


class _Mode(TorchFunctionMode):
    """Sees what is asked of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def watched() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    """A mode of torch sees no node being asked for."""

    def run(model: nn.Module) -> None:
        with _Mode() as mode:
            out = model(example())
        assert len(mode.seen) > 2
        assert not [name for name in mode.seen if "grad_fn" in name or "_backward_hooks" in name]
        out.square().sum().backward()

    return Layers(), run


def odd_names() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    """Names that are str, but no UTF-8."""
    model = nn.Sequential()
    model.add_module("\ud800", Layers())
    return model, lambda model: model(example()).sum().backward()


def in_parallel() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    distributed: Any = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)

    def run(model: nn.Module) -> None:
        wrapped = nn.parallel.DistributedDataParallel(model)
        wrapped(example()).sum().backward()

    return Layers(), run


class Probed(Layers):
    """Modules that give back what they are given are called with a tensor in the midst of it."""

    def __init__(self) -> None:
        super().__init__()
        self.probes = nn.ModuleList(nn.Sequential(nn.Identity()) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(x.sin())

    def hooked(self, then: Callable[[Tensor], None]) -> Tensor:
        """The tensor, of which something is done as soon as its gradient is complete."""
        x = self.first(example()).tanh()
        x.register_hook(lambda _: then(x))
        for probe in self.probes:
            assert probe(x) is x
        return x

    def probe(self, x: Tensor) -> None:
        """Call them, with a gradient and without."""
        for probe in self.probes:
            assert probe(x) is x
            with torch.enable_grad():
                assert self(probe(x)).grad_fn is not None


def in_a_hook() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    """A hook calls modules with the tensor that it is of: the engine goes on with its others."""

    def run(model: Any) -> None:
        model(model.hooked(model.probe)).sum().backward()

    return Probed(), run


def beside_a_pass() -> tuple[nn.Module, Callable[[nn.Module], None]]:
    """Another thread calls them, while the engine is in the midst of that tensor's hooks."""

    def run(model: Any) -> None:
        def then(x: Tensor) -> None:
            prober = threading.Thread(target=model.probe, args=(x,))
            prober.start()
            prober.join()

        model(model.hooked(then)).sum().backward()

    return Probed(), run


def gradients(model: nn.Module, run: Callable[[nn.Module], None]) -> Iterator[Tensor | None]:
    model.zero_grad()
    run(model)
    return (p.grad for p in model.parameters())


def without_recorder(action: Callable[[], list[Any]]) -> list[Any]:
    """What torch does by itself."""
    slept_before = len(slept)
    autograd: Any = torch.autograd
    call, engine = nn.Module.__call__, autograd._engine_run_backward
    nn.Module.__call__ = PLAIN_CALL
    autograd._engine_run_backward = autograd.graph._engine_run_backward
    try:
        return action()
    finally:
        nn.Module.__call__, autograd._engine_run_backward = call, engine
        del slept[slept_before:]


def check(kind: str) -> None:
    torch.manual_seed(0)
    model, run = globals()[kind]()
    twin = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for _ in range(STEPS):
        got = [None if g is None else g.clone() for g in gradients(model, run)]
        optimizer.step()
        want = without_recorder(lambda: list(gradients(twin, run)))
        for one, other in zip(got, want, strict=True):
            assert (one is None) == (other is None)
            assert one is None or torch.equal(one, other)


if __name__ == "__main__":
    check(sys.argv[1])
    print(json.dumps(slept), flush=True)
    print("ready", flush=True)
    time.sleep(600)
