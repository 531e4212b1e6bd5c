"""An ensemble trained at once by vmap over grad, after PyTorch's tutorial on model ensembling."""

import copy

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from truth import Truth, planned

torch.manual_seed(3)


def make():
    return nn.Sequential(
        nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8)
    )


models = [make() for _ in range(4)]
truth = Truth(base=models[0])
params, buffers = stack_module_state(models)
truth.learns(params.values())
base = copy.deepcopy(models[0]).to("meta")


def loss_fn(params, buffers, x, y):
    logits = functional_call(base, (params, buffers), (x,))
    return nn.functional.cross_entropy(logits, y)


step_fn = vmap(grad_and_value(loss_fn), in_dims=(0, 0, None, None))
for step in range(planned(14)):
    x, y = torch.randn(32, 64), torch.randint(0, 8, (32,))
    with truth.timed("work"):
        grads, losses = step_fn(params, buffers, x, y)
    with torch.no_grad(), truth.timed("optimizer"):
        for name in params:
            params[name] -= 0.02 * grads[name]
    truth.step(losses.mean().item(), lr=0.02)

truth.finish_with({name: p.detach() for name, p in params.items()})
