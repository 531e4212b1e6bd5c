import torch
from torch import nn


class Report:
    def __init__(self):
        self.rows = []

    def add(self, step, ids, scores):
        for sample, score in zip(ids.tolist(), scores.tolist()):
            words = [f"token-{token}-{step}" for token in sample]
            self.rows.append({"step": step, "words": words, "score": score})

    def best(self):
        return max(row["score"] for row in self.rows[-64:])


class Pointer(nn.Module):
    def __init__(self, vocab=120, width=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.out = nn.Linear(width, vocab)

    def forward(self, ids):
        hidden = self.embed(ids)
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2) / 8
        future = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        mixed = scores.masked_fill(future, -1e9).softmax(-1) @ hidden
        return self.out(torch.tanh(mixed + hidden))


def successors(generator, count=128, length=24):
    ids = torch.randint(0, 120, (count, length), generator=generator)
    return ids, (ids + 1) % 120


def main():
    torch.manual_seed(62)
    generator = torch.Generator().manual_seed(62)
    model = Pointer()
    report = Report()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(1, 1_000_000):
        ids, targets = successors(generator)
        logits = model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report.add(step, logits.argmax(-1), logits.amax(-1).mean(1))
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} best {report.best():.2f}", flush=True)


if __name__ == "__main__":
    main()
