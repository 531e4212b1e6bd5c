"""Two towers for passage search, with hard negatives from an index that is rebuilt now and then."""

import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PASSAGES, WORDS, LENGTH = 4000, 3000, 12


class Tower(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, width)
        self.out = nn.Sequential(nn.Linear(width, 96), nn.ReLU(), nn.Linear(96, width))

    def forward(self, words):
        return nn.functional.normalize(self.out(self.words(words)), dim=-1)


class HardNegatives:
    """For each passage those that the model takes for it."""

    def __init__(self, count=4):
        self.lock = threading.Lock()
        self.table = torch.randint(0, PASSAGES, (PASSAGES, count))

    def of(self, passage):
        with self.lock:
            return self.table[passage]

    def rebuild(self, vectors):
        with self.lock:
            for start in range(0, len(vectors), 25):
                scores = vectors[start : start + 25] @ vectors.T
                near = scores.topk(self.table.shape[1] + 1).indices
                self.table[start : start + 25] = near[:, 1:]


class Triples(Dataset):
    def __init__(self, passages, negatives):
        self.passages, self.negatives = passages, negatives

    def __len__(self):
        return len(self.passages)

    def __getitem__(self, index):
        passage = self.passages[index]
        query = passage[torch.randperm(LENGTH)[:4]]
        return query, passage, self.passages[self.negatives.of(index)]


def embed(model, passages):
    model.eval()
    with torch.no_grad():
        vectors = torch.cat([model(part) for part in passages.split(500)])
    model.train()
    return vectors


def train(model, passages, epochs=1000):
    negatives = HardNegatives()
    loader = DataLoader(
        Triples(passages, negatives),
        batch_size=100,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="fork",
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(1, epochs):
        for query, passage, hard in loader:
            queries, others = model(query), model(passage)
            near = model(hard.flatten(0, 1)).view(len(query), -1, others.shape[1])
            scores = torch.cat([queries @ others.T, (queries[:, None] * near).sum(-1)], dim=1)
            loss = nn.functional.cross_entropy(scores / 0.1, torch.arange(len(query)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.3f}", flush=True)
        if epoch % 4 == 0:
            vectors = embed(model, passages)
            threading.Thread(
                target=negatives.rebuild, args=(vectors,), name="rebuild", daemon=True
            ).start()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(17)
    train(Tower(), torch.randint(0, WORDS, (PASSAGES, LENGTH)))
