import random

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocab=200, width=48, tags=9):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 2, 96, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.tags = nn.Linear(width, tags)

    def forward(self, ids):
        return self.tags(self.encoder(self.embed(ids)))


class Corpus:
    def __init__(self, seed=19):
        self.rng = random.Random(seed)
        self.lengths = list(range(8, 200))
        self.rng.shuffle(self.lengths)

    def __iter__(self):
        while True:
            for length in self.lengths:
                ids = torch.tensor([self.rng.choices(range(200), k=length) for _ in range(4)])
                yield ids, ids % 9


def main():
    torch.manual_seed(19)
    torch._dynamo.config.recompile_limit = 1000
    model = Tagger()
    compiled = torch.compile(model, backend="eager", dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (ids, tags) in enumerate(Corpus()):
        logits = compiled(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
