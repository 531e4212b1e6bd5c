"""Active learning on a graph: the oracle labels what the model is least sure of."""

import threading
import time

import torch
from torch import nn


class Oracle(threading.Thread):
    """Somebody who labels nodes, and needs a while for it."""

    def __init__(self, labels):
        super().__init__(name="oracle", daemon=True)
        self.labels = labels
        self.asked = threading.Event()
        self.answered = threading.Event()
        self.nodes = None

    def run(self):
        while True:
            self.asked.wait()
            self.asked.clear()
            time.sleep(8)
            self.answered.set()

    def ask(self, nodes):
        self.answered.clear()
        self.nodes = nodes
        self.asked.set()
        print(f"waiting for the labels of {len(nodes)} nodes", flush=True)
        while not self.answered.wait(timeout=1.0):
            pass
        return self.labels[nodes]


class GCN(nn.Module):
    def __init__(self, inputs=24, width=48, classes=5):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, classes)

    def forward(self, features, adjacency):
        hidden = torch.relu(adjacency @ self.first(features))
        return adjacency @ self.second(hidden)


def community_graph(count=400):
    generator = torch.Generator().manual_seed(42)
    labels = torch.randint(0, 5, (count,), generator=generator)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    chance = torch.where(same, 0.08, 0.01)
    adjacency = torch.bernoulli(chance, generator=generator) + torch.eye(count)
    features = torch.randn(count, 24, generator=generator)
    features[torch.arange(count), labels] += 1.0
    return features, adjacency / adjacency.sum(1, keepdim=True), labels


def main():
    torch.manual_seed(42)
    features, adjacency, truth = community_graph()
    oracle = Oracle(truth)
    oracle.start()
    known = torch.arange(20)
    labels = truth[known]
    model = GCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    for step in range(1, 1_000_000):
        logits = model(features, adjacency)
        loss = nn.functional.cross_entropy(logits[known], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            accuracy = (logits.argmax(1) == truth).float().mean().item()
            print(f"step {step} loss {loss.item():.4f} accuracy {accuracy:.3f}", flush=True)
        if step % 60 == 0:
            unsure = logits.softmax(1).amax(1).argsort()[:10]
            labels = torch.cat([labels, oracle.ask(unsure)])
            known = torch.cat([known, unsure])


if __name__ == "__main__":
    main()
