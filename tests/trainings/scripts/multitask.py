"""Two tasks over one trunk: each has its own loss and its own backward(), one optimizer for all."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(46)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()
        )
        self.depth = nn.Linear(1024, 16)
        self.segment = nn.Linear(1024, 8)

    def forward(self, x):
        shared = self.trunk(x)
        return self.depth(shared), self.segment(shared)


model = MultiTask()
truth = Truth(model=model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(planned(14)):
    x = torch.randn(64, 512)
    depth, labels = torch.randn(64, 16), torch.randint(0, 8, (64,))
    optimizer.zero_grad()
    with truth.timed("forward"):
        predicted, logits = model(x)
    depth_loss = nn.functional.mse_loss(predicted, depth)
    segment_loss = nn.functional.cross_entropy(logits, labels)
    with truth.timed("backward"):
        depth_loss.backward(retain_graph=True)
    with truth.timed("backward"):
        (0.5 * segment_loss).backward()
    with truth.timed("optimizer"):
        optimizer.step()
    total = depth_loss.item() + 0.5 * segment_loss.item()
    truth.step(total, lr=optimizer.param_groups[0]["lr"])

truth.finish(model)
