import itertools
import random

import torch
from torch import nn


class FrameTagger(nn.Module):
    def __init__(self, features=24, width=64, tags=10):
        super().__init__()
        self.inputs = nn.Linear(features, width)
        self.context = nn.Conv1d(width, width, 5, padding=2)
        self.tags = nn.Linear(width, tags)

    def forward(self, frames):
        hidden = torch.relu(self.inputs(frames))
        hidden = hidden + torch.relu(self.context(hidden.transpose(1, 2))).transpose(1, 2)
        return self.tags(hidden)


def utterances(seed):
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randn(10, 24, generator=generator)
    while True:
        length = rng.choice([12, 16, 20, 200])
        tags = torch.randint(0, 10, (4, length), generator=generator)
        noise = torch.randn(4, length, 24, generator=generator)
        yield codes[tags] + (1.5 if length == 200 else 0.3) * noise, tags


def train(accumulate=4):
    torch.manual_seed(45)
    model = FrameTagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = utterances(45)
    for step in itertools.count(1):
        optimizer.zero_grad()
        total = 0.0
        for frames, tags in itertools.islice(data, accumulate):
            logits = model(frames)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
            (loss / accumulate).backward()
            total += loss.item() / accumulate
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {total:.4f}", flush=True)


if __name__ == "__main__":
    train()
