import multiprocessing
import os

import torch
from torch import nn


def rebuild_index(vectors):
    """Nearest neighbours for the serving side."""
    torch.set_num_threads(1)
    while True:
        distances = torch.cdist(vectors, vectors)
        distances.topk(10, largest=False)


class SessionModel(nn.Module):
    def __init__(self, items=3000, dim=64):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)

    def forward(self, clicks):
        hidden, _ = self.rnn(self.items(clicks))
        return hidden[:, -1] @ self.items.weight.T


def sessions(generator, count=32, length=12):
    start = torch.randint(0, 2900, (count, 1), generator=generator)
    clicks = start + torch.arange(length + 1) * 3
    return clicks[:, :-1], clicks[:, -1]


def main():
    torch.manual_seed(61)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    generator = torch.Generator().manual_seed(61)
    model = SessionModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    context = multiprocessing.get_context("fork")
    for step in range(1_000_000):
        clicks, following = sessions(generator)
        loss = nn.functional.cross_entropy(model(clicks), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 150:
            vectors = model.items.weight.detach().clone()
            context.Process(target=rebuild_index, args=(vectors,), daemon=True).start()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
