"""Weights pruned step by step by torch.nn.utils.prune while the training goes on."""

import torch
from torch import nn
from torch.nn.utils import prune
from truth import Truth, planned

torch.manual_seed(45)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
for layer in (model[0], model[2]):
    prune.l1_unstructured(layer, "weight", amount=0.1)
truth = Truth(model=model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for step in range(planned(15)):
    x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
    with truth.timed("forward"):
        out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    if step % 5 == 4 and step < 15:
        for layer in (model[0], model[2]):
            prune.l1_unstructured(layer, "weight", amount=0.2)
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(model)
