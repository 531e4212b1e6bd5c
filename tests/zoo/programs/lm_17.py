import argparse
import math

import torch
from torch import nn


class WordLM(nn.Module):
    def __init__(self, vocab=200, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(width, vocab)

    def forward(self, ids):
        hidden, _ = self.rnn(self.drop(self.embed(ids)))
        return self.out(self.drop(hidden))


def corpus(count, seed):
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, 6, (count,), generator=generator)
    return steps.cumsum(0) % 200


def perplexity(model, text, length=64):
    model.eval()
    total = count = 0
    with torch.no_grad():
        for start in range(0, len(text) - length - 1, 2):
            window = text[start : start + length + 1]
            logits = model(window[:-1].unsqueeze(0))
            total += nn.functional.cross_entropy(
                logits[0, -8:], window[-8:], reduction="sum"
            ).item()
            count += 8
    model.train()
    return math.exp(total / count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--eval-tokens", type=int, default=16_000)
    args = parser.parse_args()
    torch.manual_seed(5)
    train, valid = corpus(60_000, 1), corpus(args.eval_tokens, 2)
    model = WordLM()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(1000):
        for _ in range(200):
            starts = torch.randint(0, len(train) - 33, (16,)).tolist()
            rows = torch.stack([train[start : start + 33] for start in starts])
            loss = nn.functional.cross_entropy(
                model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} perplexity {perplexity(model, valid):.1f}", flush=True)


if __name__ == "__main__":
    main()
