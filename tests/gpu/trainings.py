"""What checks train, and how they read what is on record of it in their own process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from probing.agent import lifecycle
from probing.ring.names import decode_names
from probing.ring.peek import RingPeek
from probing.settings import Settings
from probing.tables import TABLES
from tests.gpu.devices import Device

_LAYER_S = 1e-4
ALL_STEPS = {"PROBING_OVERHEAD": "100000"}
"""Has every step timed on the device."""


class Recorded:
    """The agent of this process, and its rows."""

    def __init__(self, **settings: str) -> None:
        self.agent = lifecycle.start(Settings.from_env({**os.environ, **settings}))

    @property
    def training(self) -> Any:
        """What records."""
        return self.agent.training

    def pause(self) -> None:
        """Record nothing for a while."""
        self.training.pause()

    def go_on(self) -> None:
        """Record again."""
        self.training.start()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table, texts as texts and enums as their words."""
        path: Path = self.agent.folder.ring(table)
        if not path.exists():
            return []
        texts = decode_names(self.agent.folder.names.read_bytes())
        columns = {c.name: c for t in TABLES if t.name == table for c in t.stored_columns}
        with RingPeek(path) as ring:
            found = [ring.row(seq) for seq in range(1, ring.newest_seq() + 1)]
        rows = []
        for row in (one for one in found if one is not None):
            values: dict[str, Any] = {**row.values, "is_open": row.state == 0, "state": row.state}
            for name, value in row.values.items():
                kind = columns[name].type if name in columns else ""
                if kind == "text":
                    values[name] = texts[int(value or 0)]
                elif kind == "enum" and value is not None:
                    values[name] = columns[name].values[int(value)]
            rows.append(values)
        return rows

    def problems(self) -> list[str]:
        """What has gone wrong in it."""
        found: list[str] = self.training.problems()
        return found


class Layer(nn.Linear):
    """One that says when it has launched its work."""

    device: Device

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Launch it."""
        self.device.launched(_LAYER_S)
        return super().forward(x)


class Small:
    """A few layers and their steps; nothing in it waits for the device.

    Attributes:
        losses: What each step came to, on the device.
    """

    def __init__(self, device: Device, *, width: int = 256, depth: int = 4) -> None:
        torch.manual_seed(0)
        self.device = device
        layers = [Layer(width, width) for _ in range(depth)]
        for layer in layers:
            layer.device = device
        self.model = nn.Sequential(*layers).to(device.here)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.x = torch.randn(64, width, device=device.here)
        self.losses: list[torch.Tensor] = []

    def step(self, x: torch.Tensor | None = None) -> None:
        """One step."""
        loss = self.model(self.x if x is None else x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.detach())

    def steps(self, number: int) -> None:
        """Some of them."""
        for _ in range(number):
            self.step()
            self.device.tick(4 * _LAYER_S)

    def weights(self) -> list[torch.Tensor]:
        """Copies of them."""
        return [parameter.detach().clone() for parameter in self.model.parameters()]


def gpt(device: Device) -> Callable[[], None]:
    """A step of a GPT in bfloat16: of GPT-2's small size on a device, tiny on a made-up one."""
    example = import_module("examples.train_gpt")
    size = (2, 64, 2, 32) if device.is_fake else (12, 768, 12, 512)
    layers, dim, heads, context = size
    torch.manual_seed(0)
    model = example.GPT(layers=layers, dim=dim, heads=heads, context=context).to(device.here)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    shape = (2 if device.is_fake else 16, context)
    tokens = torch.randint(0, len(example.ALPHABET), shape, device=device.here)

    def step() -> None:
        with torch.autocast("cpu" if device.is_fake else "cuda", dtype=torch.bfloat16):
            scores = model(tokens)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        device.launched(_LAYER_S)
        device.tick(_LAYER_S)

    step.model = model  # type: ignore[attr-defined]
    return step


def wait_for(fact: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait for something at most so long; returns whether it came."""
    end = time.monotonic() + seconds
    while not fact() and time.monotonic() < end:
        time.sleep(0.05)
    return fact()


def pinned_bytes() -> int:
    """Bytes of the host's memory that torch has pinned, those that nobody uses as well."""
    told = torch.cuda.host_memory_stats_as_nested_dict()
    # Before torch 2.9 these were called otherwise.
    name = "allocated_bytes" if "active_bytes" in told else "reserved_bytes"
    return int(told[name]["current"]) if told else 0
