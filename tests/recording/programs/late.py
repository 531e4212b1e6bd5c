"""Trains or infers, and lets the agent in late, at the place that the first argument names.

Every training step is the same number of micro-batches through the same modules, one of them
checkpointed. Prints a line per step with its exact loss, then `done`, and waits to be ended.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

LAST_STEP = 5
ATTACHES_AT = 2


def let_in() -> None:
    """Let the agent in from another thread, as an injection does, and wait for it."""
    from probing import host

    home = os.environ["PROBING_HOME"]
    thread = threading.Thread(target=host.start_attached, args=(home,), name="probing-attach")
    thread.start()
    thread.join()


class Occasion:
    """Lets the agent in, once, at one place of one step."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.step = 0

    def at(self, place: str) -> None:
        if place == self.place and self.step == ATTACHES_AT:
            self.place = ""
            let_in()


class Block(nn.Module):
    def __init__(self, occasion: Occasion) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.1)
        self.occasion = occasion

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lin(x)
        self.occasion.at("forward")
        return self.drop(torch.relu(x))


class Net(nn.Module):
    def __init__(self, occasion: Occasion) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(occasion) for _ in range(3))
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks[:-1]:
            x = block(x)
        return self.head(checkpoint(self.blocks[-1], x, use_reentrant=False))


def batches() -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    while True:
        yield torch.randn(4, 8, generator=generator)


def train(
    place: str,
    make: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    *,
    closure: bool,
    between: Callable[[], None] = lambda: None,
) -> None:
    occasion = Occasion(place)
    torch.manual_seed(0)
    model = Net(occasion)
    optimizer = make(model.parameters(), lr=0.01)
    optimizer.register_step_pre_hook(lambda *_: occasion.at("before optimizer"))
    optimizer.register_step_post_hook(lambda *_: occasion.at("after optimizer"))
    data = batches()

    def run() -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(2):
            occasion.at("loader")
            y = model(next(data))
            y.register_hook(lambda _: occasion.at("backward"))
            loss = y.square().mean()
            loss.backward()
            total += loss.detach()
        return total

    for step in range(LAST_STEP + 1):
        occasion.step = step
        if closure:
            optimizer.step(lambda: float(run()))
            print("step", step)
        else:
            loss = run()
            optimizer.step()
            print("step", step, float(loss).hex())
        between()


def lbfgs(place: str) -> None:
    def make(params: Iterator[nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(params, lr=lr, max_iter=1)

    train(place, make, closure=True)


def other_optimizer(place: str) -> None:
    """The optimizer that steps is not one of torch's, though one of those exists."""
    occasion = Occasion("loader")
    model = Net(occasion)
    torch.optim.SGD(model.parameters(), lr=0.1)
    if place == "patience over":
        from probing.agent.sources.steps import boundary

        boundary.PATIENCE_NS = 0
    for step in range(LAST_STEP + 1):
        occasion.step = step
        occasion.at("loader")
        model(torch.ones(4, 8)).sum().backward()
        print("step", step)


def infer(place: str) -> None:
    occasion = Occasion(place)
    model = Net(occasion).eval()
    for step in range(LAST_STEP + 1):
        occasion.step = step
        occasion.at("loader")
        with torch.no_grad():
            model(torch.ones(4, 8))
        print("step", step)


def evaluate(place: str) -> None:
    """In a process that trains, too: an optimizer exists."""
    torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    infer(place)


def distil(place: str) -> None:
    """Every step begins with a teacher's call, without gradients."""
    occasion = Occasion(place)
    teacher, model = Net(Occasion("")), Net(occasion)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(LAST_STEP + 1):
        occasion.step = step
        occasion.at("loader")
        with torch.no_grad():
            y = teacher(torch.ones(4, 8))
        (model(torch.ones(4, 8)) - y).square().sum().backward()
        optimizer.step()
        print("step", step)


def fetched(place: str) -> None:
    """The agent comes as a dataset makes a batch, by a model of its own without gradients."""
    occasion = Occasion(place)
    encoder = nn.Linear(8, 8).requires_grad_(False)

    class Encoded(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 4 * (LAST_STEP + 1)

        def __getitem__(self, index: int) -> torch.Tensor:
            occasion.step = index // 4
            occasion.at(f"sample {index % 4}")
            with torch.no_grad():
                return encoder(torch.ones(8))

    model = Net(Occasion(""))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step, batch in enumerate(DataLoader(Encoded(), batch_size=4)):
        occasion.step = step
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        occasion.at("behind step")
        print("step", step, float(loss).hex())


def bare(place: str) -> None:
    """No module and no optimizer: the first lesson's update of two tensors by hand."""
    occasion = Occasion(place)
    weight, bias = torch.ones(8, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    for step in range(LAST_STEP + 1):
        occasion.step = step
        occasion.at("loader")
        loss = (torch.ones(4, 8) @ weight + bias).square().mean()
        loss.backward()
        with torch.no_grad():
            for tensor in (weight, bias):
                assert tensor.grad is not None
                tensor.sub_(tensor.grad, alpha=0.01)
                tensor.grad = None
        print("step", step, float(loss).hex())


def in_turns(place: str) -> None:
    """An actor's step and then that of its critic, which is called behind the actor's."""
    occasion = Occasion(place)
    models = [nn.Linear(8, 8), nn.Linear(8, 1)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]

    def pass_through(model: nn.Module) -> None:
        model(torch.ones(4, 8)).square().mean().backward()

    for step in range(3 * LAST_STEP):
        occasion.step = step
        occasion.at("before actor")
        pass_through(models[0])
        optimizers[0].step()
        occasion.at("before critic")
        pass_through(models[1])
        optimizers[1].step()
        print("step", step)


def against(place: str) -> None:
    """A generator's step, for which the discriminator is frozen, and then that one's."""
    occasion = Occasion(place)
    generator, discriminator = nn.Linear(8, 8), nn.Linear(8, 1)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (generator, discriminator)]
    for step in range(3 * LAST_STEP):
        occasion.step = step
        made = generator(torch.ones(4, 8))
        discriminator.requires_grad_(False)
        discriminator(made).mean().backward()
        occasion.at("before actor")
        optimizers[0].step()
        discriminator.requires_grad_(True)
        optimizers[1].zero_grad()
        discriminator(made.detach()).mean().backward()
        occasion.at("before critic")
        optimizers[1].step()
        occasion.at("behind both")
        print("step", step)


def in_thread(place: str) -> None:
    """The training is not in the main thread."""
    thread = threading.Thread(target=train, args=(place,), kwargs={"closure": False})
    thread.start()
    thread.join()


def hooked(place: str) -> None:
    """The agent comes while torch walks over two global hooks of the user's."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    from probing import host

    started: list[threading.Thread] = []

    def hook(*_: object) -> None:
        if not started:
            home = os.environ["PROBING_HOME"]
            started.append(threading.Thread(target=host.start_attached, args=(home,)))
            started[0].start()
            started[0].join(0.5)  # long enough to do harm, if it can

    def wait() -> None:
        """Between two steps, since the agent takes longer to start than these steps."""
        started[0].join()

    register_optimizer_step_pre_hook(hook)
    register_optimizer_step_pre_hook(lambda *_: None)
    train("", closure=False, between=wait)


class Part(nn.Module):
    def __init__(self, *, is_broken: bool) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.is_broken = is_broken

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lin(x)
        if self.is_broken:
            torch._dynamo.graph_break()
        return torch.relu(self.lin(x))


class Parts(nn.Module):
    def __init__(self, *, is_broken: bool) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Part(is_broken=is_broken) for _ in range(3))
        self.is_broken = is_broken

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
            if self.is_broken:
                torch._dynamo.graph_break()
        return x


def compiled(place: str) -> None:
    """Prints what torch.compile has done before the agent came, while it was there, and after."""
    import torch._dynamo

    import probing

    runs: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        runs.append(1)
        return graph.forward

    model = torch.compile(Parts(is_broken=place == "broken"), backend=backend)

    def use() -> str:
        for _ in range(3):
            model(torch.ones(4, 8))
        counters = torch._dynamo.utils.counters
        return f"{len(runs)} {sum(counters['graph_break'].values())} {dict(counters['frames'])}"

    print("before", use())
    let_in()
    print("with", use())
    probing.stop()
    print("after", use())


def asked_at_once(place: str) -> None:
    """Code is sent as soon as the agent is there, while the training waits for nobody."""
    import probing

    occasion = Occasion("")
    model = Net(occasion)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    answers: list[str] = []

    def ask() -> None:
        let_in()
        answers.append(probing.connect(os.getpid()).eval("1").where)

    asking = threading.Thread(target=ask)
    asking.start()
    while asking.is_alive():
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    print("ran at", *answers)


def importing(place: str) -> None:
    """The agent comes in the middle of the import of torch, which is faked by its own state."""
    spec = torch.__spec__
    assert spec is not None
    spec._initializing = True  # type: ignore[attr-defined]
    model = Net(Occasion(""))
    from probing import host

    home = os.environ["PROBING_HOME"]
    thread = threading.Thread(target=host.start_attached, args=(home,), name="probing-attach")
    thread.start()
    spec._initializing = False  # type: ignore[attr-defined]
    thread.join()
    with torch.no_grad():
        model(torch.ones(4, 8))


def forking(place: str) -> None:
    """Forks children all the while that the agent comes, and says what they are born with."""
    from probing import host
    from probing.safety import forks  # what holds the others back is there before it can

    home = os.environ["PROBING_HOME"]
    thread = threading.Thread(target=host.start_attached, args=(home,), name="probing-attach")
    thread.start()
    codes: list[int] = []
    while thread.is_alive() or not codes:
        pid = os.fork()
        if pid == 0:
            modules = [m for m in sys.modules.values() if hasattr(m, "__spec__")]
            imported_by_half = any(getattr(m.__spec__, "_initializing", False) for m in modules)
            is_wrapped = nn.Module.__call__ is not nn.Module._wrapped_call_impl
            os._exit(imported_by_half + 2 * is_wrapped + 4 * (forks._taken != 0))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print("children", set(codes))


if __name__ == "__main__":
    kind, where = sys.argv[1:]
    if where == "start":
        import probing

        probing.start()
    if kind == "train":
        train(where, closure=False)
    else:
        globals()[kind](where)
    print("done")
    time.sleep(600)
