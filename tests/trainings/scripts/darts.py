"""Architecture search after DARTS: architecture on held-out data, weights on training data."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(68)


class MixedOp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ops = nn.ModuleList(
            [nn.Linear(width, width), nn.Sequential(nn.Linear(width, width), nn.Tanh())]
        )

    def forward(self, x, weights):
        return sum(w * op(x) for w, op in zip(weights, self.ops))


class Network(nn.Module):
    def __init__(self, width=512, layers=3):
        super().__init__()
        self.stem = nn.Linear(256, width)
        self.cells = nn.ModuleList(MixedOp(width) for _ in range(layers))
        self.classifier = nn.Linear(width, 10)
        self.alphas = 1e-3 * torch.randn(layers, 2)
        self.alphas.requires_grad_(True)

    def forward(self, x):
        x = self.stem(x)
        for cell, alpha in zip(self.cells, self.alphas):
            x = cell(x, alpha.softmax(0))
        return self.classifier(x)


model = Network()
truth = Truth(model=model)
criterion = nn.CrossEntropyLoss()
w_optimizer = torch.optim.SGD(model.parameters(), lr=0.025, momentum=0.9)
a_optimizer = torch.optim.Adam([model.alphas], lr=3e-4, betas=(0.5, 0.999))
for step in range(planned(14)):
    x, y = torch.randn(96, 256), torch.randint(0, 10, (96,))
    xv, yv = torch.randn(96, 256), torch.randint(0, 10, (96,))
    a_optimizer.zero_grad()
    with truth.timed("forward"):
        logits = model(xv)
    loss_v = criterion(logits, yv)
    with truth.timed("backward"):
        loss_v.backward()
    with truth.timed("optimizer"):
        a_optimizer.step()
    w_optimizer.zero_grad()
    with truth.timed("forward"):
        logits = model(x)
    loss = criterion(logits, y)
    with truth.timed("backward"):
        loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    with truth.timed("optimizer"):
        w_optimizer.step()
    truth.step(
        {"loss_v": loss_v.item(), "loss": loss.item()},
        lr={
            "a_optimizer": a_optimizer.param_groups[0]["lr"],
            "w_optimizer": w_optimizer.param_groups[0]["lr"],
        },
    )

truth.finish(model)
