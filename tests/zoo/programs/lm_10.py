"""Instruction tuning: only the answer counts in the loss."""

import random

import torch
from torch import nn


class Examples:
    def __init__(self, seed=70):
        self.rng = random.Random(seed)
        self.served = 0

    def draw(self):
        self.served += 1
        prompt = self.rng.randint(6, 12) if self.served <= 80 * 8 else self.rng.randint(26, 30)
        total = 24
        tokens = [self.rng.randrange(3, 150)]
        while len(tokens) < total:
            tokens.append((tokens[-1] * 5 + 1) % 150)
        return tokens, prompt

    def batch(self, count=8):
        rows = [self.draw() for _ in range(count)]
        return torch.tensor([row[0] for row in rows]), torch.tensor([row[1] for row in rows])


def mask_prompt(tokens, prompts):
    labels = tokens.clone()
    covered = torch.arange(tokens.shape[1]).unsqueeze(0) < prompts.unsqueeze(1)
    labels[covered] = -100
    return labels


class Model(nn.Module):
    def __init__(self, vocab=150, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True, dropout=0.1)
        self.lm_head = nn.Linear(width, vocab)

    def forward(self, tokens, labels):
        logits = self.lm_head(self.gru(self.embed(tokens))[0])
        shifted = logits[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(shifted, labels[:, 1:].flatten(), ignore_index=-100)


def main():
    torch.manual_seed(70)
    examples = Examples()
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        tokens, prompts = examples.batch()
        loss = model(tokens, mask_prompt(tokens, prompts))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
