"""Topics of news headlines from hashed word pairs: a big bag of embeddings and a small classifier."""

import torch
import torch.nn.functional as F
from torch import nn

BUCKETS, TOPICS, WORDS = 240_000, 20, 12


class HeadlineNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.pairs = nn.EmbeddingBag(BUCKETS, width, mode="mean")
        self.hidden = nn.Linear(width, 64)
        self.topic = nn.Linear(64, TOPICS)

    def forward(self, pairs):
        return self.topic(F.relu(self.hidden(self.pairs(pairs))))


class Headlines:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.words = torch.randint(0, 5_000, (TOPICS, 400), generator=self.generator)

    def __iter__(self):
        return self

    def __next__(self):
        topics = torch.randint(0, TOPICS, (64,), generator=self.generator)
        pick = torch.randint(0, 400, (64, WORDS), generator=self.generator)
        common = torch.randint(0, 5_000, (64, WORDS), generator=self.generator)
        own = torch.rand(64, WORDS, generator=self.generator) < 0.6
        words = torch.where(own, self.words[topics[:, None], pick], common)
        pairs = (words[:, :-1] * 31 + words[:, 1:] // 500 * 7919) % BUCKETS
        return torch.cat([words, pairs], dim=1), topics


def main():
    torch.set_num_threads(1)
    torch.manual_seed(23)
    model = HeadlineNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    smooth = None
    for step, (pairs, topics) in enumerate(Headlines(23)):
        loss = F.cross_entropy(model(pairs), topics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            value = loss.item()
            smooth = value if smooth is None else 0.8 * smooth + 0.2 * value
            print(f"step {step} loss {value:.3f} smooth {smooth:.3f}", flush=True)
        if step == 20_000:
            break


if __name__ == "__main__":
    main()
