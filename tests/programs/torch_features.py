"""Runs one feature of torch per argument, and prints `ready` between and `done` at the end.

Each feature is a function that asserts its own result against torch without a recorder in the
way: outputs must be bit-equal. Afterwards the program waits to be ended.
"""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
import sys
import threading
import time
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

PLAIN_CALL = nn.Module._wrapped_call_impl


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.first(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.shared = nn.Linear(4, 4)
        self.again = self.shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.shared(self.inner(x)))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def example() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(3, 4)


def plain(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The model's output without the recorder."""
    recorder = nn.Module.__call__
    nn.Module.__call__ = PLAIN_CALL
    try:
        return model(x)
    finally:
        nn.Module.__call__ = recorder


def inference() -> None:
    model, x = net().eval(), example()
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(model(x), plain(model, x))


def inference_at_once() -> None:
    model, x = net().eval(), example()
    is_inside, may_go_on = threading.Event(), threading.Event()

    def wait(_: nn.Module, args: tuple[torch.Tensor]) -> None:
        if len(args[0]) == 1:
            is_inside.set()
            assert may_go_on.wait(60)

    @torch.no_grad()
    def serve(batch: torch.Tensor) -> None:
        model(batch)

    model.register_forward_pre_hook(wait)
    first, second = (threading.Thread(target=serve, args=(x[:n],)) for n in (1, 2))
    first.start()
    assert is_inside.wait(60)
    serve(x)
    serve(x)
    may_go_on.set()
    first.join()
    with contextlib.suppress(RuntimeError):
        serve(x[:, :1])  # of another width
    second.start()
    second.join()
    serve(x)


def training() -> None:
    model, x = net(), example()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        for _ in range(2):  # micro-batches
            model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def two_optimizers() -> None:
    one, two, x = net(), net(), example()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (one, two)]
    for _ in range(5):
        for model, optimizer in zip((one, two), optimizers, strict=True):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()


def checkpointing() -> None:
    model, x = net(), example().requires_grad_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    y = checkpoint(model.inner, x, use_reentrant=False)
    model.shared(y).sum().backward()
    optimizer.step()


def exception() -> None:
    model = net()
    for _ in range(2):
        try:
            model(torch.randn(3, 5))
        except RuntimeError as error:
            message = str(error)
        else:
            message = ""
        assert "shapes cannot be multiplied" in message
    assert model(example()).shape == (3, 4)


def compiled() -> None:
    torch._dynamo.reset()
    model, x = net(), example()
    counted: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        counted.append(len(graph.graph.nodes))
        return graph.forward

    fast = torch.compile(model, backend=backend, fullgraph=True)
    for _ in range(3):
        assert torch.equal(fast(x), plain(model, x))
    assert len(counted) == 1, f"{len(counted)} compilations"
    explained = torch._dynamo.explain(model)(x)
    assert explained.graph_break_count == 0, explained


def transforms() -> None:
    model, x = net().eval(), example()
    want = plain(model, x)
    assert torch.equal(torch.jit.trace(model, x)(x), want)
    assert torch.equal(torch.jit.script(model)(x), want)
    assert torch.equal(torch.fx.symbolic_trace(model)(x), want)
    assert torch.equal(torch.export.export(model, (x,)).module()(x), want)
    assert torch.equal(copy.deepcopy(model)(x), want)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x), want)
    params: dict[str, torch.Tensor] = dict(model.named_parameters())
    assert torch.equal(torch.func.functional_call(model, params, (x,)), want)
    assert torch.allclose(torch.func.vmap(model)(x), want)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), want)


def scripted() -> None:
    """A model of torch.jit is called as often as any other."""
    model, x = net().eval(), example()
    want = plain(model, x)
    fast = torch.jit.script(model)
    for _ in range(5):
        assert torch.equal(fast(x), want)


def captured() -> None:
    """A capture of a CUDA graph, on a made-up CUDA that writes down whatever is asked of it."""
    from tests.harness.fake_cuda import FakeCuda
    from tests.harness.fake_torch import installed

    model, x = net().eval(), example()
    with installed(FakeCuda(home=0)) as cuda, torch.no_grad():
        cuda.start()
        expected = plain(model, x)
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.Stream(torch.device("cuda", 0)):
            graph.capture_begin()
            results = [model(x) for _ in range(3)]
            graph.capture_end()
        asked = cuda.in_captures()
    assert all(torch.equal(result, expected) for result in results)
    assert asked == []


def data_parallel() -> None:
    model, x = nn.DataParallel(net()), example()
    assert torch.equal(model(x), plain(model.module, x))


def threads() -> None:
    import threading

    model, x = net().eval(), example()
    with torch.no_grad():
        model(x)  # recording begins with this, and other threads' calls meanwhile are not recorded

    def work() -> None:
        with torch.no_grad():
            for _ in range(50):
                model(x)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def many_modules() -> None:
    """Modules made anew in each forward must not slow it or pile up."""

    class Maker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.Softmax(dim=-1)(x * self.weight)

    model = Maker()
    with torch.no_grad():
        for _ in range(200):
            model(example())


def swapped() -> None:
    """A module replaced after the first call gets the name of its place."""
    model, x = net().eval(), example()
    with torch.no_grad():
        model(x)
        model.inner.first = nn.Linear(4, 4)
        model(x)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
        print("ready", name, flush=True)
    print("done", flush=True)
    time.sleep(600)
