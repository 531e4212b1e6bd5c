"""Optimizer steps fused into the backward pass, after PyTorch's tutorial on saving memory."""

import torch
import torch.nn as nn
from truth import Truth, planned

torch.manual_seed(5)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024),
    nn.GELU(), nn.Linear(1024, 32),
)  # fmt: skip
truth = Truth(model=model)

# Instead of having just *one* optimizer, we will have a dict of optimizers.
optimizer_dict = {p: torch.optim.AdamW([p], lr=1e-3, foreach=False) for p in model.parameters()}


def optimizer_hook(parameter):
    with truth.timed("optimizer"):
        optimizer_dict[parameter].step()
    optimizer_dict[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(optimizer_hook)

for i in range(planned(14)):
    inputs, labels = torch.randn(48, 512), torch.randint(0, 32, (48,))
    with truth.timed("forward"):
        logits = model(inputs)
    loss = nn.functional.cross_entropy(logits, labels)
    with truth.timed("backward"):
        loss.backward()
    rates = {
        f"optimizer_dict[{k}]": o.param_groups[0]["lr"]
        for k, o in enumerate(optimizer_dict.values())
    }
    truth.step(loss.item(), lr=rates)

truth.finish(model)
