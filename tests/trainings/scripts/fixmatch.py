"""Semi-supervised: pseudo labels by the same network without gradients, then one step on both."""

import torch
from torch import nn
from torch.nn import functional as F
from truth import Truth, planned

torch.manual_seed(90)
net = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
    nn.Flatten(), nn.Linear(1024, 10),
)  # fmt: skip
truth = Truth(net=net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
val_x, val_y = torch.randn(32, 3, 16, 16), torch.randint(0, 10, (32,))
for step in range(planned(16)):
    x, y = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))
    unlabeled = torch.randn(32, 3, 16, 16)
    with torch.no_grad():
        with truth.timed("forward"):
            weak = net(unlabeled).softmax(-1)
    confidence, pseudo = weak.max(-1)
    with truth.timed("forward"):
        logits_x, logits_u = net(
            torch.cat([x, unlabeled + 0.3 * torch.randn_like(unlabeled)])
        ).split([8, 32])
    sup = F.cross_entropy(logits_x, y)
    unsup = (F.cross_entropy(logits_u, pseudo, reduction="none") * (confidence > 0.12)).mean()
    loss = sup + unsup
    with truth.timed("backward"):
        loss.backward()
    rate = optimizer.param_groups[0]["lr"]
    with truth.timed("optimizer"):
        optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    truth.step(loss.item(), lr=rate)
    if step % 4 == 3:
        net.eval()
        with torch.no_grad(), truth.timed("evaluation"):
            (net(val_x).argmax(-1) == val_y).float().mean().item()
        net.train()

truth.finish(net)
