"""A loader's batch of 64 cut into four micro-batches by the script, which prints the whole batch's loss."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(14)
MICRO = 16
data = TensorDataset(torch.randn(512, 256), torch.randint(0, 10, (512,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(model=model)
criterion = nn.CrossEntropyLoss(reduction="sum")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

step, steps = 0, planned(14)
while step < steps:
    for x, y in loader:
        optimizer.zero_grad()
        total = 0.0
        for xs, ys in zip(x.split(MICRO), y.split(MICRO)):
            with truth.timed("forward"):
                out = model(xs)
            loss = criterion(out, ys) / len(x)
            with truth.timed("backward"):
                loss.backward()
            total += loss.item()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(total, lr=optimizer.param_groups[0]["lr"], samples=len(x))
        step += 1
        if step == steps:
            break

truth.finish(model)
