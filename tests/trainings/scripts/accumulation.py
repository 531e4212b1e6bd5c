"""Gradients accumulated over four micro-batches; printed is the loss of the last one."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(13)
ACCUMULATE = 4
data = TensorDataset(torch.randn(512, 256), torch.randint(0, 10, (512,)))
loader = DataLoader(data, batch_size=16, shuffle=True, drop_last=True)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(model=model)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

step, steps, losses = 0, planned(14), []
while step < steps:
    for i, (x, y) in enumerate(loader):
        with truth.timed("forward"):
            out = model(x)
        loss = criterion(out, y)
        losses.append(loss.item())
        with truth.timed("backward"):
            (loss / ACCUMULATE).backward()
        if (i + 1) % ACCUMULATE:
            continue
        with truth.timed("optimizer"):
            optimizer.step()
        optimizer.zero_grad()
        truth.step(
            losses[-1], lr=optimizer.param_groups[0]["lr"], mean_loss=sum(losses) / ACCUMULATE
        )
        losses.clear()
        step += 1
        if step == steps:
            break

truth.finish(model)
