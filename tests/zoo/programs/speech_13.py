"""Frame-level phone recogniser, data parallel over a few CPU ranks."""

import argparse

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

PHONES, MELS, FRAMES = 32, 40, 80


class PhoneNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(MELS, width, 5, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, PHONES)

    def forward(self, feats):
        h = self.front(feats.transpose(1, 2)).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.out(h)


def build_corpus(seed):
    """Utterances as (speaker, phones); the features are rendered on the fly."""
    rng = np.random.default_rng(seed)
    corpus = []
    for speaker in range(36):
        for _ in range(int(rng.integers(10, 30))):
            runs = rng.integers(0, PHONES, size=FRAMES // 5)
            corpus.append((speaker, np.repeat(runs, 5)))
    return corpus


class SpeakerShard(torch.utils.data.Dataset):
    """All utterances of the speakers that belong to this rank (a speaker is never split)."""

    def __init__(self, corpus, rank, world):
        self.items = [c for c in corpus if c[0] % world == rank]
        rng = np.random.default_rng(1)
        self.templates = rng.normal(size=(PHONES, MELS)).astype(np.float32)
        self.voices = rng.normal(scale=0.3, size=(36, MELS)).astype(np.float32)
        self.noise = np.random.default_rng(100 + rank)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        speaker, phones = self.items[i]
        feats = self.templates[phones] + self.voices[speaker]
        feats = feats + self.noise.normal(scale=1.2, size=feats.shape).astype(np.float32)
        return torch.from_numpy(feats), torch.from_numpy(phones)


def average_gradients(model, world):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat)
    flat /= world
    offset = 0
    for g in grads:
        g.copy_(flat[offset : offset + g.numel()].view_as(g))
        offset += g.numel()


def run(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = PhoneNet()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    shard = SpeakerShard(build_corpus(args.seed), rank, world)
    loader = torch.utils.data.DataLoader(shard, batch_size=args.batch, shuffle=True, drop_last=True)
    step = 0
    for epoch in range(args.epochs):
        model.train()
        total, seen = 0.0, 0
        for feats, phones in loader:
            loss = F.cross_entropy(model(feats).flatten(0, 1), phones.flatten())
            opt.zero_grad()
            loss.backward()
            average_gradients(model, world)
            opt.step()
            total, seen, step = total + loss.item(), seen + 1, step + 1
            if rank == 0 and step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)
        summary = [None] * world
        dist.all_gather_object(summary, {"loss": total / seen, "batches": seen})
        if rank == 0:
            print(f"epoch {epoch} done: {summary}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=200)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=3)
    run(ap.parse_args())
