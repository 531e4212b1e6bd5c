"""Momentum contrast: a key encoder that follows the query encoder, and a queue of keys."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from truth import Truth, planned

torch.manual_seed(92)


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder_q = nn.Sequential(
            nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 64)
        )
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(64, 512), dim=0))
        self.ptr = 0

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            for p_q, p_k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
                p_k.mul_(0.999).add_(p_q, alpha=0.001)
            k = F.normalize(self.encoder_k(im_k), dim=1)
        logits = (
            torch.cat([(q * k).sum(-1, keepdim=True), q @ self.queue.clone().detach()], 1) / 0.07
        )
        self.queue[:, self.ptr : self.ptr + len(k)] = k.T
        self.ptr = (self.ptr + len(k)) % 512
        return logits, torch.zeros(len(q), dtype=torch.long)


model = MoCo()
truth = Truth(model=model)
optimizer = torch.optim.SGD(
    filter(lambda p: p.requires_grad, model.parameters()), lr=0.03, momentum=0.9, weight_decay=1e-4
)
for epoch in range(-(-planned(16) // 4)):
    for group in optimizer.param_groups:
        group["lr"] = 0.03 * 0.9999**epoch
    for _ in range(4):
        x = torch.randn(64, 512)
        with truth.timed("forward"):
            output, target = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
        loss = F.cross_entropy(output, target)
        optimizer.zero_grad()
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(model)
