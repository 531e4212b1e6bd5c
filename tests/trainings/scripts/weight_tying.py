"""An autoencoder of text whose output layer is its embedding, and whose one block is called twice."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(43)


class Tied(nn.Module):
    def __init__(self, vocab=1500, width=256):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.block = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 768), nn.GELU(), nn.Linear(768, width)
        )
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        x = x + self.block(x)
        x = x + self.block(x)
        return self.lm_head(x)


model = Tied()
truth = Truth(model=model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(planned(14)):
    ids = torch.randint(0, 1500, (6, 24))
    with truth.timed("forward"):
        logits = model(ids)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(model)
