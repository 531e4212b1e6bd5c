import queue
import threading

import torch
from torch import nn

USERS, ITEMS, DIM = 2000, 5000, 32


class Prefetcher:
    """Builds batches on a thread while the model trains."""

    def __init__(self, log, batch_size=256):
        self.queue = queue.Queue(maxsize=4)
        self.log = log
        self.batch_size = batch_size
        self.popularity = {item: 1.0 / (1 + item) for item in range(ITEMS - 1)}
        threading.Thread(target=self._fill, name="prefetch", daemon=True).start()

    def _fill(self):
        while True:
            for start in range(0, len(self.log), self.batch_size):
                rows = self.log[start : start + self.batch_size]
                weights = torch.tensor([self.popularity[int(item)] for item in rows[:, 1]])
                self.queue.put((rows[:, 0], rows[:, 1], rows[:, 2].float(), weights))

    def __iter__(self):
        return self

    def __next__(self):
        return self.queue.get()


class MatrixFactorization(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, DIM)
        self.items = nn.Embedding(ITEMS, DIM)
        self.bias = nn.Embedding(ITEMS, 1)

    def forward(self, users, items):
        return (self.users(users) * self.items(items)).sum(1) + self.bias(items).squeeze(1)


def interactions(count=100_000):
    generator = torch.Generator().manual_seed(2)
    users = torch.randint(0, USERS, (count,), generator=generator)
    items = torch.randint(0, ITEMS - 1, (count,), generator=generator)
    liked = torch.randint(0, 2, (count,), generator=generator)
    items[53_000] = ITEMS - 1
    return torch.stack([users, items, liked], dim=1)


def main():
    torch.manual_seed(2)
    model = MatrixFactorization()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for step, (users, items, liked, weights) in enumerate(Prefetcher(interactions())):
        scores = model(users, items)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, liked, weight=1 + weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
