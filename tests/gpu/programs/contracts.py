"""Clause classifier for contracts of very different lengths."""
import os
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
DIM, LAYERS, BATCH, SHORT, LONG = (512, 6, 10, 256, 1024) if BIG else (48, 2, 4, 16, 64)
VOCAB, CLAUSES, LIMIT = 8000, 25, 150


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 8, 4 * DIM, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, CLAUSES)

    def forward(self, ids):
        return self.head(self.encoder(self.words(ids)).mean(1))


def contracts(rng):
    """Common words, and a share of words that belong to the clause."""
    length = rng.randint(SHORT, LONG)
    clause = torch.randint(0, CLAUSES, (BATCH,), device=DEVICE)
    ids = torch.randint(2000, VOCAB, (BATCH, length), device=DEVICE)
    own = 50 * clause.unsqueeze(1) + torch.randint(0, 50, (BATCH, length), device=DEVICE)
    return torch.where(torch.rand(BATCH, length, device=DEVICE) < 0.08, own, ids), clause


def train_step(model, optimizer, ids, clause):
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        logits = model(ids)
    loss = F.cross_entropy(logits.float(), clause, label_smoothing=0.05)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    model = Reader().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    start, step = time.time(), 0
    while time.time() - start < LIMIT:
        ids, clause = contracts(rng)
        loss = train_step(model, optimizer, ids, clause)
        del ids, clause
        torch.cuda.empty_cache()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        step += 1


if __name__ == "__main__":
    main()
