"""Trains by functions of torch.func for ever; prints the bytes of what it learns, then `ready`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))


def loss_of(params: dict[str, Tensor], x: Tensor) -> Tensor:
    out: Tensor = functional_call(net, params, (x,))
    return out.square().mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    params = {name: p.detach().clone() for name, p in net.named_parameters()}
    print("bytes", sum(p.nbytes for p in params.values()), flush=True)
    step = 0
    while True:
        gradients = grad(loss_of)(params, torch.randn(16, 64))
        params = {name: p - 0.01 * gradients[name] for name, p in params.items()}
        step += 1
        if step == 8:
            print("ready", flush=True)
