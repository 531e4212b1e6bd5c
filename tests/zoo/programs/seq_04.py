import argparse

import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self, vocab=40, width=64):
        super().__init__()
        self.source = nn.Embedding(vocab, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.target = nn.Embedding(vocab, width)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, vocab)

    def forward(self, source, target):
        _, state = self.encoder(self.source(source))
        hidden, _ = self.decoder(self.target(target), state)
        return self.out(hidden)


def pairs(generator, vocab=40, count=32, length=8):
    source = torch.randint(2, vocab, (count, length), generator=generator)
    target = source.flip(1)
    start = torch.ones(count, 1, dtype=torch.long)
    return source, torch.cat([start, target[:, :-1]], dim=1), target


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1e-4)
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args()
    torch.manual_seed(64)
    generator = torch.Generator().manual_seed(65)
    model = Translator()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    for step in range(args.steps):
        source, shifted, target = pairs(generator)
        logits = model(source, shifted)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
