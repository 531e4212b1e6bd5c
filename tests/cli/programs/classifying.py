"""Trains a small model to tell classes; the argument says what its loss is given, without end.

`softmax` is a softmax before the cross-entropy, `sigmoid` one before that of single labels,
`picked` probabilities without a logarithm, `far` a divergence of probabilities. Healthy are
`scores`, `taught`, which learns from a teacher, too, `mixed`, the logarithm of a mixture, and
`routed`, with attention, a softmax that chooses experts and a loss for that.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F  # noqa: N812 - as scripts do
from torch import Tensor, nn

PAUSE_S = 0.004
CLASSES, WIDTH, LENGTH = 6, 16, 5
WAY = sys.argv[1]


class Sorter(nn.Module):
    """Attends to a sequence, and has two experts sort what it finds."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.gate = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in range(2))

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.attention(rows, rows, rows)[0].mean(1)
        shares = self.gate(hidden).softmax(-1)
        scores = torch.stack([expert(hidden) for expert in self.experts], -1)
        if WAY == "mixed":
            return (scores.softmax(1) * shares[:, None]).sum(-1), shares
        return (scores * shares[:, None]).sum(-1), shares


def loss_of(scores: Tensor, shares: Tensor, labels: Tensor, teacher: Tensor) -> Tensor:
    if WAY == "softmax":
        return nn.CrossEntropyLoss()(nn.Softmax(dim=1)(scores), labels)
    if WAY == "sigmoid":
        wanted = F.one_hot(labels, CLASSES).float()
        return F.binary_cross_entropy_with_logits(scores.sigmoid(), wanted)
    if WAY == "picked":
        return nn.NLLLoss()(scores.softmax(1), labels)
    if WAY == "far":
        return F.kl_div((scores / 2).softmax(1), teacher, reduction="batchmean") * 4
    if WAY == "mixed":
        return F.nll_loss(scores.log(), labels)
    loss = F.cross_entropy(scores, labels, label_smoothing=0.1 if WAY == "taught" else 0.0)
    if WAY == "taught":
        return loss + F.kl_div(scores.log_softmax(1), teacher, reduction="batchmean")
    if WAY == "routed":
        return loss + 0.01 * (shares.mean(0) * shares.detach().mean(0)).sum()
    return loss


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, means = Sorter(), torch.randn(CLASSES, WIDTH)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    print("ready", flush=True)
    step = 0
    while True:
        labels = torch.randint(0, CLASSES, (16,))
        rows = means[labels, None] + torch.randn(16, LENGTH, WIDTH)
        teacher = (3.0 * F.one_hot(labels, CLASSES)).softmax(1)
        optimizer.zero_grad()
        scores, shares = model(rows)
        loss_of(scores, shares, labels, teacher).backward()
        optimizer.step()
        step += 1
        print("step", step, flush=True)
        time.sleep(PAUSE_S)


main()
