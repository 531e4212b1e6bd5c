"""PCGrad: a pass per task through one trunk, projected against each other, set as .grad by hand."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(206)
TASKS = 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU())
        self.heads = nn.ModuleList(nn.Linear(512, 1) for _ in range(TASKS))

    def forward(self, x):
        h = self.trunk(x)
        return [head(h).squeeze(1) for head in self.heads]


def project(flat):
    out = [g.clone() for g in flat]
    for i, g in enumerate(out):
        for j in torch.randperm(TASKS).tolist():
            dot = g @ flat[j]
            if i != j and dot < 0:
                g -= dot / (flat[j] @ flat[j]) * flat[j]
    return sum(out)


data = TensorDataset(torch.randn(512, 128), torch.randn(512, TASKS))
loader = DataLoader(data, batch_size=64, shuffle=True)
net = Net()
truth = Truth(net=net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
step, steps = 0, planned(14)
while step < steps:
    for x, y in loader:
        with truth.timed("forward"):
            outs = net(x)
        losses = [nn.functional.mse_loss(out, y[:, i]) for i, out in enumerate(outs)]
        flat = []
        for i, loss in enumerate(losses):
            optimizer.zero_grad()
            with truth.timed("backward"):
                loss.backward(retain_graph=i < TASKS - 1)
            flat.append(
                torch.cat(
                    [
                        (torch.zeros_like(p) if p.grad is None else p.grad).flatten()
                        for p in net.parameters()
                    ]
                )
            )
        merged, at = project(flat), 0
        for p in net.parameters():
            p.grad = merged[at : at + p.numel()].view_as(p).clone()
            at += p.numel()
        with truth.timed("optimizer"):
            optimizer.step()
        total = sum(loss.item() for loss in losses)
        truth.step(total, lr=optimizer.param_groups[0]["lr"], samples=len(x))
        step += 1
        if step == steps:
            break

truth.finish(net)
