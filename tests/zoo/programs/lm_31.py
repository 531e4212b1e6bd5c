"""Sentence classifier on two ranks with DistributedDataParallel."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence

VOCAB, LABELS, BATCH = 800, 4, 12


def corpus(n=4000, seed=3):
    """Reviews of 6 to 120 tokens; a label has its own favourite words."""
    g = torch.Generator().manual_seed(seed)
    reviews = []
    for _ in range(n):
        label = int(torch.randint(LABELS, (1,), generator=g))
        length = int(6 + 114 * torch.rand(1, generator=g) ** 2)
        words = torch.randint(1, VOCAB, (length,), generator=g)
        favourite = torch.rand(length, generator=g) < 0.25
        words[favourite] = 1 + label * 40 + words[favourite] % 40
        reviews.append((words, label))
    reviews.sort(key=lambda r: len(r[0]))
    return reviews


def shard(reviews, rank, world):
    per_rank = len(reviews) // world
    return reviews[rank * per_rank : (rank + 1) * per_rank]


class Classifier(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.position = nn.Parameter(torch.randn(128, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            dim, 4, 128, dropout=0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, LABELS)

    def forward(self, tokens):
        pad = tokens == 0
        h = self.embed(tokens) + self.position[: tokens.shape[1]]
        h = self.encoder(h, src_key_padding_mask=pad)
        h = h.masked_fill(pad.unsqueeze(-1), 0).sum(1) / (~pad).sum(1, keepdim=True)
        return self.out(h)


def batches(part, g):
    while True:
        order = torch.randperm(len(part), generator=g).tolist()
        for start in range(0, len(order) - BATCH + 1, BATCH):
            picked = [part[i] for i in order[start : start + BATCH]]
            tokens = pad_sequence([w for w, _ in picked], batch_first=True)
            yield tokens, torch.tensor([label for _, label in picked])


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(17)
    model = DistributedDataParallel(Classifier())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    part = shard(corpus(), rank, world)
    feed = batches(part, torch.Generator().manual_seed(100 + rank))
    torch.manual_seed(100 + rank)
    for step, (tokens, labels) in enumerate(feed, 1):
        loss = F.cross_entropy(model(tokens), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
