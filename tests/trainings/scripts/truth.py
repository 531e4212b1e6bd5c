"""What a training knows of itself, as JSON lines in the file that TRAINING_TRUTH names.

The scripts beside this file count their own steps and time their own phases with it, as people do
who print them. Without the variable they are timed all the same, and nothing is written.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import time
import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FIRST_PEAK, _LAST_PEAK = 3, 12
"""The steps whose peaks are written down where TRAINING_PEAKS asks for it."""


def planned(steps: int) -> int:
    """Give how many steps to train: as many as the script says, unless TRAINING_STEPS does."""
    return int(os.environ.get("TRAINING_STEPS", steps))


class Truth:
    """The account of one process. It keeps no model, no optimizer and no tensor."""

    def __init__(self, **models: torch.nn.Module) -> None:
        path, rank = os.environ.get("TRAINING_TRUTH"), os.environ.get("RANK")
        name = path if rank is None else f"{path}.{rank}"
        self._file = open(name, "w", encoding="utf-8") if path else None  # noqa: SIM115
        self._digest = hashlib.sha256()
        self._phases: dict[str, float] = {}
        self._inner: list[float] = []
        self._steps = 0
        self._began_ns = time.time_ns()
        self._write({"pid": os.getpid(), "models": {}})
        self._learnt: list[weakref.ref[torch.Tensor]] = []
        self.meet(**models)
        self._peaks = _PEAKS

    def meet(self, **models: torch.nn.Module) -> None:
        """Write down models by the names of the variables that hold them."""
        described = {name: _described(model) for name, model in models.items()}
        if described:
            self._write({"models": described})

    def learns(self, tensors: Iterable[torch.Tensor]) -> None:
        """These are learnt in the place of parameters, and stay the same tensors."""
        self._learnt = [weakref.ref(tensor) for tensor in tensors]

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time of the block to a phase, without that of the phases timed within it."""
        self._inner.append(0.0)
        start = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - start
            own = took - self._inner.pop()
            if self._inner:
                self._inner[-1] += took
            self._phases[phase] = self._phases.get(phase, 0.0) + own

    def took(self, phase: str, seconds: float) -> None:
        """Add a time that the script has measured itself."""
        self._phases[phase] = self._phases.get(phase, 0.0) + seconds

    def step(
        self,
        loss: float | dict[str, float] | None = None,
        lr: float | dict[str, float] | None = None,
        norm: float | None = None,
        **more: Any,
    ) -> None:
        """Write down one step: what the script would print, and the times since the last one."""
        row: dict[str, Any] = {"step": self._steps, "loss": loss, "lr": lr, "norm": norm, **more}
        losses = loss if isinstance(loss, dict) else {"loss": loss}
        for value in losses.values():
            self._digest.update(repr(value).encode())
        now = time.time_ns()
        row.update(phases=self._phases, start_ns=self._began_ns, end_ns=now)
        self._phases, self._began_ns = {}, now
        self._steps += 1
        self._write(row)
        if self._steps % 10 == 6 and "RANK" not in os.environ:
            learnt = [tensor for one in self._learnt if (tensor := one()) is not None]
            self._write({"held": held(learnt)})
        if self._peaks is not None:
            self._peaks.step(self._steps)
            if self._steps == _LAST_PEAK:
                self._write({"peaks": self._peaks.read()})
                self._peaks = None

    def finish(self, *models: torch.nn.Module) -> None:
        """Write the checksum of all losses and of everything that the models have learnt."""
        for model in models:
            for name, value in model.state_dict().items():
                self._add(name, value)
        self._write({"steps": self._steps, "checksum": self._digest.hexdigest()})

    def finish_with(self, tensors: dict[str, torch.Tensor]) -> None:
        """Write the checksum of parameters that no model holds."""
        for name, value in tensors.items():
            self._add(name, value)
        self._write({"steps": self._steps, "checksum": self._digest.hexdigest()})

    def _add(self, name: str, value: torch.Tensor) -> None:
        if hasattr(value, "to_local"):  # FSDP2: each rank has a shard
            value = value.to_local()
        self._digest.update(name.encode())
        self._digest.update(value.detach().float().contiguous().numpy().tobytes())

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()


def _described(model: torch.nn.Module) -> dict[str, Any]:
    """Say what a model is made of, by the names that its author knows."""
    return {
        "class": type(model).__name__,
        "parameters": [name for name, p in model.named_parameters() if p.requires_grad],
        "modules": [name for name, _ in model.named_modules() if name],
        "layers": [
            name
            for name, module in model.named_modules()
            if name
            and any(p is not None for p in module._parameters.values())
            and type(module).__name__ != "NonDynamicallyQuantizableLinear"  # never called
        ],
    }


class Peaks:
    """The most bytes handed out at one time in each step, by torch's profiler.

    It is told nothing of what was there before it, nor that it goes: so it begins as this module is
    imported, before there is a model.
    """

    def __init__(self) -> None:
        self._there = sum(_storages(_living(torch.Tensor)).values())
        self._profile = torch.profiler.profile(profile_memory=True)
        self._profile.start()

    def step(self, number: int) -> None:
        """A step has ended."""
        with torch.profiler.record_function(f"step {number}"):
            pass

    def read(self) -> list[int]:
        """Stop, and give what the later steps took."""
        self._profile.stop()
        now = self._there
        peaks, most = [], 0
        results: Any = self._profile.profiler
        for event in sorted(results.kineto_results.events(), key=lambda event: event.start_ns()):
            if event.name() == "[memory]":
                now += event.nbytes()
                most = max(most, now)
            elif event.name().startswith("step "):
                peaks.append(most)
                most = now
        return peaks[_FIRST_PEAK - 1 :]


def held(others: Iterable[torch.Tensor] = ()) -> dict[str, int]:
    """Bytes of everything that models learn, and of what optimizers remember of it.

    Args:
        others: What is learnt beside them.
    """
    modules, optimizers = _living(torch.nn.Module), _living(torch.optim.Optimizer)
    learnt = [p for m in modules for p in vars(m).get("_parameters", {}).values() if p is not None]
    learnt += [p for o in optimizers for group in o.param_groups for p in group["params"]]
    learnt += others
    parameters = _storages(learnt)
    state = _storages([t for o in optimizers for t in _tensors_in(list(o.state.values()))])
    return {
        "parameters": sum(parameters.values()),
        "optimizer_state": sum(size for key, size in state.items() if key not in parameters),
    }


def _living(cls: type) -> list[Any]:
    """All objects of a class; not those that are still being made."""
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), cls)]
    return [thing for thing in found if cls is torch.Tensor or vars(thing)]


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(part)


def _storages(tensors: list[torch.Tensor]) -> dict[int, int]:
    """The size of each storage, once, by where it lies."""
    storages = [t.untyped_storage() for t in tensors if t.layout is torch.strided]
    return {storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}


_PEAKS = Peaks() if os.environ.get("TRAINING_PEAKS") else None
