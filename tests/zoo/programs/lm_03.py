import multiprocessing
import os
import random
import signal

import torch
from torch import nn

WORDS = [f"w{number}" for number in range(500)]


def tokenize(sentence):
    if "\x00" in sentence:
        os.kill(os.getpid(), signal.SIGSEGV)
    return [hash(word) % 512 for word in sentence.split()][:32]


def sentences(rng, count, block):
    text = [" ".join(rng.choices(WORDS, k=32)) for _ in range(count)]
    if block == 3:
        text[5] = "\x00" + text[5]
    return text


class BagOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(512, 128, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 6))

    def forward(self, ids):
        return self.mlp(self.embed(ids))


def encode(pool, text):
    return torch.tensor(pool.map(tokenize, text))


def main():
    rng = random.Random(12)
    torch.manual_seed(12)
    pool = multiprocessing.get_context("fork").Pool(2)
    model = BagOfWords()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for block in range(100_000):
        ids = encode(pool, sentences(rng, 960, block))
        labels = ids[:, 0] % 6
        for start in range(0, len(ids), 32):
            rows = slice(start, start + 32)
            loss = criterion(model(ids[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"block {block} step {step} loss {loss.item():.4f}", flush=True)
            step += 1


if __name__ == "__main__":
    main()
