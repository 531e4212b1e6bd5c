"""A Sequential with lambdas in it, and a loss that is a module."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(41)


class Lambda(nn.Module):
    def __init__(self, func):
        super().__init__()
        self.func = func

    def forward(self, x):
        return self.func(x)


model = nn.Sequential(
    Lambda(lambda x: x.view(-1, 1, 28, 28)),
    nn.Conv2d(1, 32, kernel_size=3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 64, kernel_size=3, padding=1),
    nn.ReLU(),
    nn.AvgPool2d(2),
    Lambda(lambda x: x.view(x.size(0), -1)),
    nn.Linear(64 * 49, 512),
    nn.ReLU(),
    nn.Linear(512, 10),
)
truth = Truth(model=model)
loss_func = nn.CrossEntropyLoss()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for i in range(planned(14)):
    xb, yb = torch.randn(24, 784), torch.randint(0, 10, (24,))
    with truth.timed("forward"):
        pred = model(xb)
    loss = loss_func(pred, yb)
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        opt.step()
    opt.zero_grad()
    truth.step(loss.item(), lr=opt.param_groups[0]["lr"])

truth.finish(model)
