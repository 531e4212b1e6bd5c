"""Contrastive learning with GradCache: all representations first, then one chunk after the other."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(73)
encoder = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 128)
)
truth = Truth(encoder=encoder)
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
for step in range(planned(14)):
    queries = torch.randn(128, 512)
    documents = queries + 0.1 * torch.randn(128, 512)
    chunks = [*queries.chunk(4), *documents.chunk(4)]
    reps = []
    with torch.no_grad():
        for chunk in chunks:
            with truth.timed("forward"):
                reps.append(encoder(chunk))
    reps = [rep.detach().requires_grad_() for rep in reps]
    scores = torch.cat(reps[:4]) @ torch.cat(reps[4:]).T
    loss = nn.functional.cross_entropy(scores, torch.arange(128))
    with truth.timed("backward"):
        loss.backward()
    optimizer.zero_grad()
    for chunk, rep in zip(chunks, reps):
        with truth.timed("forward"):
            out = encoder(chunk)
        surrogate = torch.dot(out.flatten(), rep.grad.flatten())
        with truth.timed("backward"):
            surrogate.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(encoder)
