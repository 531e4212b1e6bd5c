"""Trains on and on, in the way of its argument; `inside` says who is in a backward pass just now.

Optimizers step, models are called and steps are marked in hooks of tensors and modules, in
callbacks of DistributedDataParallel, inside of transformed functions and in other threads.
torch reads the annotations of a communication hook, so those of this file are no strings.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

import probing

torch.set_num_threads(1)
dist: Any = torch.distributed
inside: list[str] = []
X, Y = torch.randn(8, 16), torch.randn(8, 1)


class Slow(torch.autograd.Function):
    """Keeps a backward pass busy for a while, with the interpreter let go."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        time.sleep(0.003)
        return grad.clone()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) if sys.argv[1] == "transformed" else Slow.apply(layer(x))
        return x


def run_backward(loss: Tensor, who: str = "main") -> None:
    def begin(_: Tensor) -> None:
        inside.append(who)
        torch.autograd.Variable._execution_engine.queue_callback(lambda: inside.remove(who))

    loss.register_hook(begin)
    loss.backward()


def loss_of(model: nn.Module) -> Tensor:
    return (model(X) - Y).square().mean()


def tensors(model: nn.Module) -> Callable[[], None]:
    optimizers = {id(p): torch.optim.SGD([p], lr=1e-3) for p in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[id(parameter)].step()
        optimizers[id(parameter)].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    return lambda: run_backward(loss_of(model))


def modules(model: Any) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(*_: object) -> None:
        optimizer.step()
        probing.step()

    model.layers[0].register_full_backward_hook(step)
    model.layers[2].weight.register_hook(model.layers[1])
    return lambda: run_backward(loss_of(model))


def worker(model: nn.Module) -> Callable[[], None]:
    """Another thread prepares data with modules, and the update is written by hand."""
    transform = nn.Sequential(nn.Linear(16, 16), nn.Tanh())

    def prepare() -> None:
        while True:
            with torch.no_grad():
                transform(X)
            time.sleep(0.001)

    threading.Thread(target=prepare, daemon=True).start()

    def step() -> None:
        run_backward(loss_of(model))
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(1e-3 * parameter.grad)
                parameter.grad = None

    return step


def trainers(model: nn.Module) -> Callable[[], None]:
    """Two trainings in two threads."""

    def train(net: nn.Module, who: str) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

        def step() -> None:
            optimizer.zero_grad()
            run_backward(loss_of(net), who)
            optimizer.step()

        return step

    def go_on(step: Callable[[], None]) -> None:
        while True:
            step()
            time.sleep(0.001)  # other tests want to run, too

    threading.Thread(target=go_on, args=(train(Net(), "other"),), daemon=True).start()
    return train(model, "main")


def beginning(model: nn.Module) -> Callable[[], None]:
    """The same, and each pass takes its time between having asked for leave and its beginning."""
    from probing.agent.sources.steps.ends.counted_thread import CountedThread

    counted: Any = CountedThread.passes

    def slowly(self: CountedThread, thread: Any) -> bool:
        time.sleep(0.01)
        return bool(counted(self, thread))

    CountedThread.passes = slowly
    return trainers(model)


def transformed(model: nn.Module) -> Callable[[], None]:
    """A model that is called inside of `torch.func.grad`."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def compute(given: dict[str, Tensor]) -> Tensor:
        out: Tensor = torch.func.functional_call(model, given, (X,))
        return (out - Y).square().mean()

    def step() -> None:
        gradients = torch.func.grad(compute)(parameters)
        for name, gradient in gradients.items():
            parameters[name] = parameters[name] - 1e-3 * gradient

    return step


def parallel(model: nn.Module) -> Callable[[], None]:
    """An optimizer that steps in the callback of DistributedDataParallel's communication hook."""
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-3)

    def hook(
        state: object,
        bucket: torch.distributed.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[Tensor]:
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()

        def then(done: torch.futures.Future[list[Tensor]]) -> Tensor:
            optimizer.step()
            return done.value()[0]

        return future.then(then)

    wrapped.register_comm_hook(None, hook)
    return lambda: run_backward(loss_of(wrapped))


WAYS: dict[str, Callable[[Net], Callable[[], None]]] = {
    "tensors": tensors,
    "modules": modules,
    "worker": worker,
    "trainers": trainers,
    "beginning": beginning,
    "transformed": transformed,
    "parallel": parallel,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    net = Net()
    net_step = WAYS[sys.argv[1]](net)
    for number in range(10**9):
        net_step()
        if number == 3:
            print("ready", flush=True)
