"""A curriculum: sequences grow longer as the training goes on, and batches smaller."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(27)
STAGES = [(16, 32), (32, 16), (64, 8)]


class Transformer(nn.Module):
    def __init__(self, vocab=256, width=192):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, 4, 512, dropout=0.0, batch_first=True), 2
        )
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids)))


net = Transformer()
truth = Truth(net=net)
optim = torch.optim.AdamW(net.parameters(), lr=5e-4)
steps = planned(15)
for stage, (length, batch) in enumerate(STAGES):
    for _ in range(steps // len(STAGES)):
        ids = torch.randint(0, 256, (batch, length))
        with truth.timed("forward"):
            logits = net(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        optim.zero_grad()
        with truth.timed("backward"):
            loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        with truth.timed("optimizer"):
            optim.step()
        truth.step(loss.item(), lr=optim.param_groups[0]["lr"], norm=norm.item(), stage=stage)
truth.finish(net)
