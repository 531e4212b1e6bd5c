"""Takes the agent in and out again, and compares the process with what it was before.

Each argument is a function that does so in its own way and asserts. Prints `done` at the end.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import http.client
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HOME = os.environ["PROBING_HOME"]
MODEL = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)
X = torch.ones(1, 2)
LOADER = DataLoader(TensorDataset(X), batch_size=1)
BATCHES = iter(LOADER)
FED_BY = (LOADER, LOADER.batch_sampler, LOADER.dataset, BATCHES)
FORKS = "probing.safety.forks"
IN_C = "probing.ring._native"


def train(steps: int = 2) -> None:
    for _ in range(steps):
        for (x,) in LOADER:
            MODEL(x)
        next(BATCHES, None)
        MODEL(X).sum().backward()
        OPTIMIZER.step()
        OPTIMIZER.zero_grad()


def snapshot() -> dict[str, Any]:
    """Everything of the process that an agent may change."""
    gc.collect()
    hooks = sys.modules["torch.optim.optimizer"]
    loading: Any = sys.modules["torch.utils.data.dataloader"]
    links = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
    return {
        "call": nn.Module.__call__,
        "next": loading._BaseDataLoaderIter.__next__,
        "pre hooks": dict(hooks._global_optimizer_pre_hooks),
        "post hooks": dict(hooks._global_optimizer_post_hooks),
        "references": sum(map(weakref.getweakrefcount, (*MODEL.modules(), *FED_BY))),
        "threads": sorted(t.name for t in threading.enumerate()),
        "files": sorted(os.readlink(link) for link in links if os.path.islink(link)),
        "mappings": sum(HOME in line for line in Path("/proc/self/maps").read_text().splitlines()),
        "finders": list(sys.meta_path),
        "path": list(sys.path),
        "excepthook": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "streams": (sys.stdout, sys.stderr),
        "at exit": at_exit(),
        "signals": {n: signal.getsignal(n) for n in signal.valid_signals()},
        "loggers": sorted(logging.root.manager.loggerDict),
        "warnings": list(warnings.filters),
        "modules": loaded(),
        "modules in memory": modules_in_memory(),
        "faulthandler": faulthandler.is_enabled(),
        "folders": sorted(os.listdir(HOME)) if os.path.isdir(HOME) else [],
        "environment": dict(os.environ),
    }


def at_exit() -> list[object]:
    """What Python will call at the end: it compares all of that with what is to be taken away."""
    found: list[object] = []

    class Asker:
        def __eq__(self, other: object) -> bool:
            found.append(other)
            return False

        def __hash__(self) -> int:
            return 0

        def __call__(self) -> None:
            return None

    atexit.unregister(Asker())
    return found


def loaded() -> set[str]:
    """Modules, but for those of the standard library and the one of ours that must stay."""
    # Python's own list of them leaves out the first.
    standard = {"_xxsubinterpreters", *sys.stdlib_module_names, "__main__"}
    return {m for m in sys.modules if m.partition(".")[0] not in standard and m != FORKS}


def modules_in_memory() -> list[str]:
    """The modules of ours that are there, also those that nobody can import any more."""
    modules = [o for o in gc.get_objects() if type(o) is types.ModuleType]
    ours = {m.__name__ for m in modules if m.__name__.startswith("probing.")}
    return sorted(ours - {FORKS, IN_C})


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, object]:
    """What is not as before."""
    changed: dict[str, object] = {k: (before[k], after[k]) for k in before if before[k] != after[k]}
    if "modules" in changed:
        changed["modules"] = sorted(before["modules"] ^ after["modules"])
    return changed


def attach() -> None:
    """Let the agent in as an injection does."""
    from probing import host

    thread = threading.Thread(target=host.start_attached, args=(HOME,), name="probing-attach")
    thread.start()
    thread.join()
    assert nn.Module.__call__ is not nn.Module._wrapped_call_impl


def detach(*, keep_record: bool = False) -> tuple[str, ...]:
    from probing.agent import lifecycle

    leaving = lifecycle.detach(keep_record=keep_record)
    assert leaving is not None
    return leaving.left


def wait_until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < end, [t.name for t in threading.enumerate()]
        time.sleep(0.01)


def has_left() -> bool:
    return not any(t.name.startswith("probing-") for t in threading.enumerate())


def post(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """A request of a client that knows nothing but HTTP, to the unix socket."""
    (folder,) = Path(HOME).glob(f"{os.getpid()}-*")
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(folder / "sock"))
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def load_server() -> None:
    """What cannot be unloaded is there before, so that all else can be compared."""
    import asyncio.selector_events
    import ctypes

    import aiohttp.web

    import_all_of = (asyncio.selector_events, ctypes, aiohttp.web)
    assert all(import_all_of)


def asked_by_http() -> None:
    """The answer comes, and then nothing is left."""
    load_server()
    train()
    before = snapshot()
    for _ in range(2):
        attach()
        train(3)
        status, answer = post("/v1/detach", {})
        assert (status, answer["pid"], answer["kept"]) == (200, os.getpid(), None), answer
        assert len(answer["left"]) == 1, answer
        wait_until(has_left)
        assert differences(before, snapshot()) == {}, differences(before, snapshot())
        train()


def with_the_server_new() -> None:
    """What the server has loaded stays, and is named; the second time it is there already."""
    attach()
    _, answer = post("/v1/detach", {})
    wait_until(has_left)
    assert any("aiohttp" in sentence for sentence in answer["left"]), answer
    before = snapshot()
    attach()
    post("/v1/detach", {})
    wait_until(has_left)
    assert differences(before, snapshot()) == {}, differences(before, snapshot())


def again_and_again() -> None:
    """Twenty times in and out leave what once leaves."""
    train()
    attach()
    train()
    detach()
    before, kept = snapshot(), sys.modules[FORKS]
    for _ in range(20):
        attach()
        train(3)
        detach()
        detach_of_nothing()
        assert sys.modules[FORKS] is kept, "it would be registered once more at each attach"
    assert differences(before, snapshot()) == {}, differences(before, snapshot())


def from_a_device() -> None:
    """What CUDA has made for the first agent the next ones use; no more is made for them."""
    from tests.harness.fake_cuda import FakeCuda
    from tests.harness.fake_torch import install

    cuda = install(FakeCuda(devices=1))
    cuda.start()
    counts, calls = [], ("event_create", "host_alloc")
    for _ in range(3):
        attach()
        for _ in range(12):
            train(1)
            cuda.advance(1.0)
        left = detach()
        assert any("the next agent uses them again" in sentence for sentence in left), left
        gc.collect()  # an agent that has left refers to itself in circles
        counts.append(cuda.calls(*calls))
    assert counts[0] > 0
    assert counts == counts[:1] * 3, counts


def detach_of_nothing() -> None:
    from probing.agent import lifecycle

    assert lifecycle.detach(keep_record=False) is None
    for name in [n for n in sys.modules if n.startswith("probing") and n != FORKS]:
        del sys.modules[name]


def keeping_the_record() -> None:
    """The rings stay where they are; socket and token go."""
    load_server()
    attach()
    train(3)
    _, answer = post("/v1/detach", {"keep_record": True})
    wait_until(has_left)
    kept = sorted(os.listdir(answer["kept"]))
    assert {"batches.ring", "card.json", "names", "steps.ring", "torch_trace.ring"} <= set(kept), (
        kept
    )
    assert not {"sock", "token"} & set(kept), kept


def in_a_forward() -> None:
    """The call in progress goes on as if nothing had been there."""
    attach()
    train(3)
    want = MODEL(X)

    class Leaver(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            thread = threading.Thread(target=detach)
            thread.start()
            thread.join()
            return x

    before = nn.Module.__call__
    got = nn.Sequential(Leaver(), MODEL)(X)
    assert torch.equal(got, want)
    assert nn.Module.__call__ is not before
    assert nn.Module.__call__ is nn.Module._wrapped_call_impl
    assert has_left()


def under_another_wrapper() -> None:
    """A wrapper that was put over ours goes on to work; ours passes everything through."""
    attach()
    train(3)
    ours = nn.Module.__call__
    bound = MODEL.__call__
    seen: list[nn.Module] = []

    def theirs(self: nn.Module, *args: object) -> object:
        seen.append(self)
        return ours(self, *args)

    nn.Module.__call__ = theirs
    left = detach()
    assert any("torch.nn.Module.__call__" in sentence for sentence in left), left
    assert nn.Module.__call__ is theirs
    want = MODEL.forward(X)
    seen.clear()
    assert torch.equal(MODEL(X), want)
    assert seen == [MODEL, *MODEL]
    nn.Module.__call__ = ours
    assert torch.equal(MODEL(X), want)
    nn.Module.__call__ = nn.Module._wrapped_call_impl
    assert torch.equal(bound(X), want)
    attach()
    train(3)
    detach()
    assert nn.Module.__call__ is nn.Module._wrapped_call_impl


def under_another_loader() -> None:
    """What was put over our stand-in goes on to work; ours passes every batch through."""
    loading: Any = sys.modules["torch.utils.data.dataloader"]
    iterator: Any = loading._BaseDataLoaderIter
    original = iterator.__next__
    attach()
    train(3)
    ours = iterator.__next__
    assert ours is not original
    seen: list[object] = []

    def theirs(self: object) -> object:
        seen.append(self)
        return ours(self)

    iterator.__next__ = theirs
    left = detach()
    assert any("DataLoader" in sentence for sentence in left), left
    assert [len(batch) for batch in LOADER] == [1]
    assert len(seen) == 2
    iterator.__next__ = original
    attach()
    train(3)
    detach()
    assert iterator.__next__ is original


def in_a_dataset() -> None:
    """The wait in progress goes on as if nothing had been there."""
    attach()
    train(3)

    class Leaver(TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            thread = threading.Thread(target=detach)
            thread.start()
            thread.join()
            return super().__getitem__(index)

    ((x,),) = DataLoader(Leaver(X), batch_size=1)
    assert torch.equal(x, X)
    assert has_left()


def during_an_eval() -> None:
    """Code that is running is interrupted, and leaves no thread behind."""
    attach()
    train(3)
    answers: list[object] = []

    def ask() -> None:
        try:
            code = {"code": "while True: running = True", "now": True, "assign": True}
            answers.append(post("/v1/eval", code))
        except (OSError, http.client.HTTPException) as error:
            answers.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: "running" in globals())
    status, _ = post("/v1/detach", {})
    assert status == 200
    wait_until(has_left)
    asking.join(30)
    assert len(answers) == 1
    assert sys.stdout is sys.__stdout__
    train()


def between_hooks_of_the_user() -> None:
    """Torch is not disturbed while it walks over hooks, one of which waits for us to go."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    leaving: list[threading.Thread] = []

    def hook(*_: object) -> None:
        if wants and not leaving:
            leaving.append(threading.Thread(target=detach))
            leaving[0].start()
            leaving[0].join(0.5)  # long enough to do harm, if it can

    wants: list[bool] = []
    handles = [register_optimizer_step_post_hook(hook)]
    attach()
    handles.append(register_optimizer_step_post_hook(lambda *_: None))
    train(3)
    wants.append(True)
    train(1)
    leaving[0].join()
    for handle in handles:
        handle.remove()
    assert not sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks


def used_by_the_program() -> None:
    """Modules of ours that the program has imported too are not taken from it."""
    import probing

    attach()
    globals()["its_own"] = probing
    left = detach()
    assert any("imported them too" in sentence for sentence in left), left
    assert sys.modules["probing"] is probing
    del globals()["its_own"]


def started_by_itself() -> None:
    """An agent that came with the start of the process leaves as well."""
    before = nn.Module.__call__
    train()
    status, _ = post("/v1/detach", {})
    assert status == 200
    wait_until(has_left)
    assert nn.Module.__call__ is not before
    assert not [finder for finder in sys.meta_path if "probing" in type(finder).__module__]
    assert os.listdir(HOME) == []
    train()
    pid = os.fork()
    if pid == 0:
        train()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
        print("ready", name, flush=True)
    print("done", flush=True)
