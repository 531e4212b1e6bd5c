"""Tiny transformer with an external scorer every few steps."""

import subprocess
import sys

import torch
from torch import nn

SCORER = """
import sys
lines = sys.stdin.read().split()
for line in lines:
    print("token", line, "score", sum(map(ord, line)) % 97)
"""


class TinyLM(nn.Module):
    def __init__(self, vocab=128, width=64, context=48):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.block = nn.TransformerEncoderLayer(width, 4, 128, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        hidden = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.block(hidden, src_mask=mask, is_causal=True))


def score_samples(samples):
    words = "\n".join(str(word) for word in samples).encode()
    with open("samples.txt", "wb") as file:
        file.write(words)
    with open("samples.txt", "rb") as file:
        scorer = subprocess.Popen(
            [sys.executable, "-c", SCORER], stdin=file, stdout=subprocess.PIPE
        )
        code = scorer.wait()
    return code, scorer.stdout.read().count(b"\n")


def main():
    torch.manual_seed(9)
    model = TinyLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randint(0, 128, (400, 49))
    kept = []
    for step in range(1_000_000):
        rows = data[torch.randint(0, len(data), (16,))]
        logits = model(rows[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.extend(logits.argmax(-1).flatten()[:32].tolist())
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step and step % 40 == 0:
            print("scored", score_samples(kept), flush=True)


if __name__ == "__main__":
    main()
