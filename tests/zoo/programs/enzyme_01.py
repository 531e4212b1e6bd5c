"""Activity of enzyme variants: a sequence model is pretrained, then fine-tuned on one family."""

import torch
import torch.nn.functional as F
from torch import nn

ACIDS, LENGTH, WIDTH = 21, 48, 96


class EnzymeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.acid = nn.Embedding(ACIDS, WIDTH)
        self.place = nn.Embedding(LENGTH, WIDTH)
        self.mix = nn.Linear(LENGTH, LENGTH)
        self.wide = nn.Linear(WIDTH, 2 * WIDTH)
        self.narrow = nn.Linear(2 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.activity = nn.Linear(WIDTH, 1)

    def forward(self, chains):
        hidden = self.acid(chains) + self.place.weight
        hidden = hidden + self.mix(hidden.transpose(1, 2)).transpose(1, 2)
        hidden = hidden + self.narrow(F.gelu(self.wide(self.norm(hidden))))
        return self.activity(hidden.mean(1)).squeeze(-1)


class Assay:
    """Chains with an activity that depends on the acids at each place."""

    def __init__(self, seed, base=None, change=0.0):
        self.generator = torch.Generator().manual_seed(seed)
        table = torch.randn(LENGTH, ACIDS, generator=self.generator) / LENGTH**0.5
        self.table = table if base is None else base.table + change * table

    def batch(self, count=64):
        chains = torch.randint(0, ACIDS, (count, LENGTH), generator=self.generator)
        return chains, self.table[torch.arange(LENGTH), chains].sum(1)


def pretrain(model, assay, steps=500):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        chains, activity = assay.batch()
        loss = F.mse_loss(model(chains), activity)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"pretrained, loss {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(28)
    general = Assay(28)
    model = EnzymeNet()
    pretrain(model, general)
    family = Assay(29, base=general, change=0.8)
    model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.0)
    smooth = None
    for step in range(100_000):
        chains, activity = family.batch()
        loss = F.mse_loss(model(chains).float(), activity)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
        if step % 20 == 0:
            print(f"step {step} loss {smooth:.4f}", flush=True)


if __name__ == "__main__":
    main()
