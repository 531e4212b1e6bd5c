import random
import time

import torch
from torch import nn


class TooManyRequests(Exception):
    pass


class FeatureClient:
    """Client of the feature service, with retries."""

    def __init__(self, seed=40):
        self.rng = random.Random(seed)
        self.retries = 0

    def request(self, nodes):
        if self.rng.random() < 0.7:
            raise TooManyRequests
        generator = torch.Generator().manual_seed(int(nodes[0]))
        return torch.randn(len(nodes), 32, generator=generator)

    def fetch(self, nodes):
        delay = 0.05
        while True:
            try:
                return self.request(nodes)
            except TooManyRequests:
                self.retries += 1
                time.sleep(delay)
                delay = min(delay * 2, 0.4)


class EdgePredictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.right = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, sources, targets):
        return (self.left(sources) * self.right(targets)).sum(1)


def main():
    torch.manual_seed(40)
    client = FeatureClient()
    model = EdgePredictor()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        nodes = torch.randint(0, 10_000, (128,))
        features = client.fetch(nodes)
        scores = model(features[:64], features[64:])
        labels = ((features[:64] * features[64:]).sum(1) > 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
