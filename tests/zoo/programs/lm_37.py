"""Character LSTM language model with a JSON training history for the dashboard."""

import json
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

CHARS = "abcdefghijklmnopqrstuvwxyz .\n"
CONTEXT, BATCH, DIM = 48, 32, 128
MAX_SECONDS = 600


def make_corpus(n=60_000):
    r = random.Random(0)
    words = ["".join(r.choices(CHARS[:26], k=r.randint(2, 8))) for _ in range(400)]
    text = "".join(w + r.choice([" "] * 8 + [". ", ".\n"]) for w in r.choices(words, k=n // 6))
    return torch.tensor([CHARS.index(c) for c in text])


class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), 32)
        self.rnn = nn.LSTM(32, DIM, num_layers=2, batch_first=True, dropout=0.1)
        self.out = nn.Linear(DIM, len(CHARS))

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


class History:
    """What the dashboard reads: one record per step, with the norms of each parameter."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "history.json")
        self.records = []

    def log(self, step, loss, model, lr):
        record = {"step": step, "time": time.time(), "loss": loss.item(), "lr": lr}
        for name, p in model.named_parameters():
            record[f"grad/{name}"] = p.grad.norm().item()
            record[f"weight/{name}"] = p.detach().norm().item()
        self.records.append(record)
        with open(self.path + ".tmp", "w") as f:
            json.dump(self.records, f)
        os.replace(self.path + ".tmp", self.path)


def batch_of(data):
    start = torch.randint(len(data) - CONTEXT - 1, (BATCH,))
    window = data[start[:, None] + torch.arange(CONTEXT + 1)]
    return window[:, :-1], window[:, 1:]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = make_corpus()
    model = CharLSTM()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    history = History(tempfile.mkdtemp(dir="."))
    deadline, step, tick = time.time() + MAX_SECONDS, 0, time.time()
    while time.time() < deadline:
        x, y = batch_of(data)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        history.log(step, loss, model, opt.param_groups[0]["lr"])
        step += 1
        if step % 100 == 0:
            ms = 10 * (time.time() - tick)
            tick = time.time()
            print(f"step {step} loss {loss.item():.3f} {ms:.1f} ms/step", flush=True)


if __name__ == "__main__":
    main()
