"""A compiled model; aot_eager, since a laptop has no patience for inductor."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(10)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


raw = nn.Sequential(Block(512), Block(512), nn.Linear(512, 10))
truth = Truth(model=raw)
model = torch.compile(raw, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(planned(14)):
    x, y = torch.randn(64, 512), torch.randint(0, 10, (64,))
    with truth.timed("forward"):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(raw)
