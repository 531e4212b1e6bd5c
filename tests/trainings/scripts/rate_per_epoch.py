"""The rate is set by the script at the start of each epoch: a step decay written by hand."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(49)
BASE_LR = 0.05
dataset = TensorDataset(torch.randn(1280, 512), torch.randint(0, 10, (1280,)))
loader = DataLoader(dataset, batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(model=model)
optimizer = torch.optim.SGD(model.parameters(), lr=BASE_LR, momentum=0.9, weight_decay=1e-4)


def adjust_learning_rate(optimizer, epoch):
    """Sets the learning rate to the initial LR decayed by 10 every 3000 epochs."""
    lr = BASE_LR * (0.1 ** (epoch // 3000))
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr


for epoch in range(max(1, planned(40) // len(loader))):
    adjust_learning_rate(optimizer, epoch)
    for x, y in loader:
        with truth.timed("forward"):
            out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(model)
