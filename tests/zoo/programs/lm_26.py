"""Review classification with a GRU on several ranks, DistributedDataParallel, gloo."""

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, CLASSES, BATCH = 2000, 5, 16


def load_reviews(n=6000, seed=21):
    """Made-up reviews: class words hidden among common ones; the length is log-normal."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(mean=3.3, sigma=0.9, size=n), 5, 260).astype(int)
    labels = rng.integers(0, CLASSES, size=n)
    docs = []
    for length, label in zip(lengths, labels):
        words = rng.integers(100, VOCAB, size=length)
        cues = rng.random(length) < 0.2
        words[cues] = rng.integers(1, 20, size=int(cues.sum())) + 20 * label
        docs.append((torch.from_numpy(words), int(label)))
    # neighbours of like length, so that little is padded
    docs.sort(key=lambda d: len(d[0]))
    return docs


def my_part(docs, rank, world):
    per_rank = len(docs) // world
    return docs[rank * per_rank : (rank + 1) * per_rank]


def epochs(part, seed):
    """Batches of neighbouring lengths, in a new order each epoch."""
    g = np.random.default_rng(seed)
    starts = np.arange(0, len(part) - BATCH + 1, BATCH)
    while True:
        for s in g.permutation(starts):
            chunk = part[s : s + BATCH]
            words = nn.utils.rnn.pad_sequence([d for d, _ in chunk], batch_first=True)
            lengths = torch.tensor([len(d) for d, _ in chunk])
            yield words, lengths, torch.tensor([y for _, y in chunk])


class Classifier(nn.Module):
    def __init__(self, dim=64, hidden=96):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, words, lengths):
        h, _ = self.gru(self.embed(words))
        mask = (torch.arange(words.shape[1])[None] < lengths[:, None]).unsqueeze(-1)
        pooled = (h * mask).sum(1) / lengths[:, None]
        return self.head(self.drop(pooled))


def worker():
    torch.set_num_threads(1)
    torch.manual_seed(21)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(Classifier())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    right = seen = 0
    part = my_part(load_reviews(), rank, world)
    for step, (words, lengths, y) in enumerate(epochs(part, seed=rank), 1):
        logits = model(words, lengths)
        loss = loss_fn(logits, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        right += int((logits.argmax(1) == y).sum())
        seen += len(y)
        if step % 25 == 0:
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f} acc {right / seen:.3f}", flush=True)
            right = seen = 0
        if step >= 20_000:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    worker()
