import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence


class Sentiment(nn.Module):
    def __init__(self, vocab=400, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, 3)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(
            self.embed(ids), lengths, batch_first=True, enforce_sorted=False
        )
        _, (hidden, _) = self.rnn(packed)
        return self.out(hidden[-1])


class Texts:
    def __init__(self, count=6000, seed=77):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(count):
            length = min(200, 8 + int(rng.expovariate(1 / 40)))
            mood = rng.randrange(3)
            words = [rng.randrange(1 + 100 * mood, 200 + 100 * mood) for _ in range(length)]
            self.rows.append((torch.tensor(words), mood))

    def batches(self, rng, size=16):
        """Texts of like length come together, the batches in random order."""
        order = sorted(range(len(self.rows)), key=lambda row: len(self.rows[row][0]) + rng.random())
        groups = [order[start : start + size] for start in range(0, len(order), size)]
        rng.shuffle(groups)
        for group in groups:
            ids = pad_sequence([self.rows[row][0] for row in group], batch_first=True)
            lengths = torch.tensor([len(self.rows[row][0]) for row in group])
            yield ids, lengths, torch.tensor([self.rows[row][1] for row in group])


def main():
    torch.manual_seed(77)
    rng = random.Random(78)
    texts = Texts()
    model = Sentiment()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(1000):
        for ids, lengths, labels in texts.batches(rng):
            loss = nn.functional.cross_entropy(model(ids, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
