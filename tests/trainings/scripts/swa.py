"""Weights averaged at the end of the training, and batch norms brought up to date with them."""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(75)
data = TensorDataset(torch.randn(320, 256), torch.randint(0, 10, (320,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
    nn.Linear(1024, 10),
)  # fmt: skip
truth = Truth(model=model)
swa_model = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
swa_scheduler = SWALR(optimizer, swa_lr=0.01, anneal_epochs=2000)
step, steps = 0, planned(15)
while step < steps:
    for x, y in loader:
        optimizer.zero_grad()
        with truth.timed("forward"):
            out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        with truth.timed("backward"):
            loss.backward()
        lr = optimizer.param_groups[0]["lr"]
        with truth.timed("optimizer"):
            optimizer.step()
        step += 1
        truth.step(loss.item(), lr=lr)
        if step == steps:
            break
    swa_model.update_parameters(model)
    swa_scheduler.step()
    update_bn(loader, swa_model)

truth.finish(model)
