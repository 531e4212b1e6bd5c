"""Click-through ranking: embeddings and an MLP, four micro-batches for each optimizer step."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
FIELDS, VOCAB, DIM, DENSE = (26, 5000, 64, 13) if BIG else (6, 500, 8, 13)
MICRO, ACCUMULATE, POOL, HIDDEN = (32768, 4, 48, 1024) if BIG else (256, 4, 400, 64)
LIMIT = 150


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(FIELDS * VOCAB, DIM)
        nn.init.normal_(self.table.weight, std=0.01)
        self.register_buffer("shift", torch.arange(FIELDS, dtype=torch.int32) * VOCAB)
        self.mlp = nn.Sequential(
            nn.Linear(FIELDS * DIM + DENSE, HIDDEN), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(HIDDEN, HIDDEN // 2), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(HIDDEN // 2, 1),
        )

    def forward(self, ids, dense):
        rows = self.table(ids + self.shift).flatten(1)
        return self.mlp(torch.cat([rows, dense], 1)).squeeze(1)


def click_log():
    rng = np.random.default_rng(0)
    taste = rng.normal(0, 0.5, (FIELDS, VOCAB)).astype(np.float32)
    batches = []
    for _ in range(POOL):
        ids = rng.integers(0, VOCAB, (MICRO, FIELDS), dtype=np.int32)
        dense = rng.normal(size=(MICRO, DENSE)).astype(np.float32)
        score = taste[np.arange(FIELDS), ids].sum(1) + dense[:, 0] - 2.0
        label = (rng.random(MICRO) < 1 / (1 + np.exp(-score))).astype(np.float32)
        batch = [torch.from_numpy(a) for a in (ids, dense, label)]
        batches.append([b.pin_memory() for b in batch] if BIG else batch)
    return batches


class Prefetcher:
    """Copies the next micro-batch on its own stream while the current one is computed."""

    def __init__(self, batches):
        self.batches, self.position = batches, 0
        self.stream = torch.cuda.Stream() if BIG else None
        self.fetch()

    def fetch(self):
        batch = self.batches[self.position % len(self.batches)]
        self.position += 1
        if self.stream is None:
            self.ready = batch
            return
        with torch.cuda.stream(self.stream):
            self.ready = [b.to(DEVICE, non_blocking=True) for b in batch]

    def next(self):
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            for tensor in self.ready:
                tensor.record_stream(torch.cuda.current_stream())
        batch = self.ready
        self.fetch()
        return batch


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    source, model = Prefetcher(click_log()), Ranker().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        total = torch.zeros((), device=DEVICE)
        for _ in range(ACCUMULATE):
            ids, dense, label = source.next()
            loss = F.binary_cross_entropy_with_logits(model(ids, dense), label) / ACCUMULATE
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0:
            print(f"step {step} loss {total.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
