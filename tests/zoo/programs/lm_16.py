import ctypes
import random

import torch
from torch import nn

libc = ctypes.CDLL(None)
libc.strlen.argtypes = [ctypes.c_char_p]
libc.strlen.restype = ctypes.c_size_t


def native_length(text):
    return libc.strlen(text.encode() if text else None)


def sentences(seed):
    rng = random.Random(seed)
    served = 0
    while True:
        batch = []
        for _ in range(32):
            served += 1
            words = 0 if served == 60 * 32 + 12 else rng.randint(1, 12)
            batch.append(" ".join(rng.choice(["red", "green", "blue"]) for _ in range(words)))
        yield batch


def encode(batch):
    lengths = torch.tensor([native_length(text) for text in batch])
    ids = torch.zeros(len(batch), 64, dtype=torch.long)
    for row, text in enumerate(batch):
        data = text.encode()[:64]
        ids[row, : len(data)] = torch.tensor(list(data))
    return ids, (lengths % 3)


class ByteNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, 32)
        self.rnn = nn.LSTM(32, 64, batch_first=True)
        self.out = nn.Linear(64, 3)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0][:, -1])


def main():
    torch.manual_seed(27)
    model = ByteNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step, batch in enumerate(sentences(27)):
        ids, labels = encode(batch)
        loss = nn.functional.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
