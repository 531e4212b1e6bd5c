"""Contrastive learning as sentence-transformers caches it: a hook of the loss trains the encoder."""

from contextlib import nullcontext
from functools import partial

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(85)
MINI = 32
encoder = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 128)
)
truth = Truth(encoder=encoder)
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)


class CachedLoss:
    def __init__(self):
        self.cache = None

    def embed(self, column, with_grad):
        for mini in column.split(MINI):
            with nullcontext() if with_grad else torch.no_grad():
                yield encoder(mini)

    def calculate(self, reps):
        anchors, documents = torch.cat(reps[0]), torch.cat(reps[1])
        labels = torch.arange(len(anchors))
        parts = []
        for begin in range(0, len(anchors), MINI):
            scores = anchors[begin : begin + MINI] @ documents.T
            part = nn.functional.cross_entropy(scores, labels[begin : begin + MINI])
            part = part * len(scores) / len(anchors)
            part.backward()
            parts.append(part.detach())
        loss = sum(parts)
        self.cache = [[r.grad for r in column] for column in reps]
        return loss.requires_grad_()

    def backward_hook(self, grad_output, columns):
        with torch.enable_grad():
            for column, grads in zip(columns, self.cache):
                for rep, grad in zip(self.embed(column, with_grad=True), grads):
                    surrogate = torch.dot(rep.flatten(), grad.flatten()) * grad_output
                    surrogate.backward()

    def __call__(self, columns):
        reps = []
        for column in columns:
            with truth.timed("forward"):
                column_reps = list(self.embed(column, with_grad=False))
            reps.append([r.detach().requires_grad_() for r in column_reps])
        with truth.timed("backward"):
            loss = self.calculate(reps)
        loss.register_hook(partial(self.backward_hook, columns=columns))
        return loss


criterion = CachedLoss()
for step in range(planned(14)):
    anchors = torch.randn(128, 512)
    loss = criterion([anchors, anchors + 0.1 * torch.randn(128, 512)])
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(encoder)
