"""A small residual network of plain torch modules, for programs that step it themselves."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

_BATCH, _SIZE, _CLASSES = 16, 32, 10


class Residual(nn.Module):
    """Two convolutions, added to their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Refine every pixel."""
        out = self.act(self.first_norm(self.first(x)))
        out = self.second_norm(self.second(out))
        result: Tensor = self.act(out + x)
        return result


def make_model() -> nn.Module:
    """Three stages of two residual blocks, each stage with half the pixels and twice the width."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1)]
    width = 32
    for stage in range(3):
        if stage:
            layers.append(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1))
            width *= 2
        layers += [Residual(width), Residual(width)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, _CLASSES)]
    return nn.Sequential(*layers)


def make_stepper() -> Callable[[], None]:
    """What runs one step: forward, cross entropy, backward, SGD with momentum."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    draw = torch.Generator().manual_seed(1)
    images = torch.randn(_BATCH, 3, _SIZE, _SIZE, generator=draw)
    labels = torch.randint(_CLASSES, (_BATCH,), generator=draw)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step
