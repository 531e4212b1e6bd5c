"""Activations recomputed in the backward pass, to save memory."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from truth import Truth, planned

torch.manual_seed(44)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Deep(nn.Module):
    def __init__(self, width=512, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


model = Deep()
truth = Truth(model=model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(planned(14)):
    x, y = torch.randn(48, 512), torch.randint(0, 10, (48,))
    with truth.timed("forward"):
        out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    with truth.timed("backward"):
        loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with truth.timed("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], norm=norm.item())

truth.finish(model)
