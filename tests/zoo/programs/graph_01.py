"""Message passing on a citation graph."""

import gc
import random

import torch
from torch import nn


class Paper:
    def __init__(self, number):
        self.number = number
        self.cites = []
        self.meta = {"year": 1990 + number % 30, "tags": [number % 7, number % 11]}


def citation_graph(count=8_000):
    rng = random.Random(4)
    papers = [Paper(number) for number in range(count)]
    for paper in papers[1:]:
        for _ in range(3):
            paper.cites.append(papers[rng.randrange(paper.number)])
    return papers


class GraphLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.other = nn.Linear(inputs, outputs)

    def forward(self, features, sources, targets):
        gathered = torch.zeros_like(features).index_add(0, targets, features[sources])
        return torch.relu(self.own(features) + self.other(gathered))


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = GraphLayer(32, 64)
        self.layer2 = GraphLayer(64, 64)
        self.out = nn.Linear(64, 7)

    def forward(self, features, sources, targets):
        hidden = self.layer1(features, sources, targets)
        return self.out(self.layer2(hidden, sources, targets))


def subgraph(papers, rng, size=256):
    chosen = rng.sample(papers, size)
    place = {paper.number: index for index, paper in enumerate(chosen)}
    edges = [(place[p.number], rng.randrange(size)) for p in chosen for _ in p.cites]
    sources, targets = torch.tensor(edges).T
    labels = torch.tensor([paper.meta["tags"][0] for paper in chosen])
    return torch.nn.functional.one_hot(labels, 32).float(), sources, targets, labels


def train_step(model, optimizer, batch):
    features, sources, targets, labels = batch
    loss = nn.functional.cross_entropy(model(features, sources, targets), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    gc.collect()
    return loss.item()


def main():
    torch.manual_seed(4)
    rng = random.Random(5)
    papers = citation_graph()
    model = GraphNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        loss = train_step(model, optimizer, subgraph(papers, rng))
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
