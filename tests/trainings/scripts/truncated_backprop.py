"""Backpropagation through time in chunks: backward of each, one optimizer step per sequence."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(24)
CHUNK, CHUNKS = 8, 3


class Tagger(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.cell = nn.GRU(32, width, num_layers=2, batch_first=True)
        self.tag = nn.Linear(width, 12)

    def forward(self, x, state=None):
        x, state = self.cell(x, state)
        return self.tag(x), state


tagger = Tagger()
truth = Truth(tagger=tagger)
optimizer = torch.optim.Adam(tagger.parameters(), lr=1e-3)
for step in range(planned(14)):
    x = torch.randn(16, CHUNK * CHUNKS, 32)
    y = torch.randint(0, 12, (16, CHUNK * CHUNKS))
    state, losses = None, []
    optimizer.zero_grad()
    for part, target in zip(x.split(CHUNK, 1), y.split(CHUNK, 1)):
        with truth.timed("forward"):
            out, state = tagger(part, state)
        loss = nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())
        with truth.timed("backward"):
            loss.backward()
        state = state.detach()
        losses.append(loss.item())
    norm = nn.utils.clip_grad_norm_(tagger.parameters(), 1.0)
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(sum(losses) / CHUNKS, lr=optimizer.param_groups[0]["lr"], norm=norm.item())

truth.finish(tagger)
