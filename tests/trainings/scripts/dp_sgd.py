"""DP-SGD as Opacus does it: a gradient per sample by vmap, clipped, with noise, set by hand as .grad."""

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(203)
CLIP, NOISE = 1.0, 0.5
data = TensorDataset(torch.randn(512, 128), torch.randint(0, 10, (512,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)
)
truth = Truth(model=model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def loss_of_one(params, x, y):
    out = functional_call(model, params, (x[None],))
    return nn.functional.cross_entropy(out, y[None])


per_sample = vmap(grad_and_value(loss_of_one), in_dims=(None, 0, 0))
step, steps = 0, planned(14)
while step < steps:
    for x, y in loader:
        params = {name: p.detach() for name, p in model.named_parameters()}
        grads, losses = per_sample(params, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factor = (CLIP / (norms + 1e-6)).clamp(max=1.0)
        for name, p in model.named_parameters():
            summed = torch.einsum("b,b...->...", factor, grads[name])
            p.grad = (summed + NOISE * CLIP * torch.randn_like(p)) / len(x)
        with truth.timed("optimizer"):
            optimizer.step()
        optimizer.zero_grad()
        truth.step(losses.mean().item(), lr=optimizer.param_groups[0]["lr"], samples=len(x))
        step += 1
        if step == steps:
            break

truth.finish(model)
