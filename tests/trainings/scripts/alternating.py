"""Phases that take turns: three steps of the encoder with the head frozen, then three of the head."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(32)
PHASE = 3
encoder = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 768), nn.ReLU())
head = nn.Sequential(nn.Linear(768, 1024), nn.ReLU(), nn.Linear(1024, 10))
truth = Truth(encoder=encoder, head=head)
encoder_opt = torch.optim.Adam(encoder.parameters(), lr=1e-3)
head_opt = torch.optim.Adam(head.parameters(), lr=3e-3)

for step in range(planned(18)):
    of_encoder = (step // PHASE) % 2 == 0
    encoder.requires_grad_(of_encoder)
    head.requires_grad_(not of_encoder)
    optimizer = encoder_opt if of_encoder else head_opt
    x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
    with truth.timed("forward"):
        h = encoder(x)
    with truth.timed("forward"):
        logits = head(h)
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    name = "encoder_opt" if of_encoder else "head_opt"
    truth.step(loss.item(), lr={name: optimizer.param_groups[0]["lr"]})

truth.finish(encoder, head)
