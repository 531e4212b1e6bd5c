"""Noise-contrastive training of a sequence scorer."""

import math

import torch
from torch import nn

LENGTH = 24
SYMBOLS = 32


class Scorer(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.score = nn.Linear(width, 1)

    def forward(self, sequences):
        hidden, _ = self.lstm(self.embed(sequences))
        return self.score(hidden[:, -1]).squeeze(-1)


def sample_positive(generator, count):
    start = torch.randint(0, SYMBOLS, (count, 1), generator=generator)
    return (start + torch.arange(LENGTH)) % SYMBOLS


def sample_negative(generator, temperature):
    """A random sequence that looks enough like a real one."""
    while True:
        candidate = torch.randint(0, SYMBOLS, (LENGTH,), generator=generator)
        closeness = (candidate.diff() == 1).float().mean().item()
        if torch.rand((), generator=generator).item() < math.exp((closeness - 1) / temperature):
            return candidate


def main():
    torch.manual_seed(8)
    generator = torch.Generator().manual_seed(8)
    model = Scorer()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    temperature = 2.0
    for step in range(1_000_000):
        positive = sample_positive(generator, 16)
        negative = torch.stack([sample_negative(generator, temperature) for _ in range(16)])
        scores = model(torch.cat([positive, negative]))
        labels = torch.cat([torch.ones(16), torch.zeros(16)])
        loss = nn.functional.binary_cross_entropy_with_logits(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step > 100 and step % 10 == 0:
            temperature *= 0.1
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} temperature {temperature:.3g}", flush=True)


if __name__ == "__main__":
    main()
