"""Embed nodes so that distances match the hops between them."""

import torch
from torch import nn


class NodeEmbedding(nn.Module):
    def __init__(self, nodes=200, dim=16):
        super().__init__()
        self.table = nn.Embedding(nodes, dim)
        self.project = nn.Sequential(nn.Linear(dim, 64), nn.Tanh(), nn.Linear(64, dim))

    def forward(self, nodes):
        return self.project(self.table(nodes))


def pairwise(points):
    difference = points.unsqueeze(0) - points.unsqueeze(1)
    return difference.pow(2).sum(-1).sqrt()


def hops(nodes, count=200):
    direct = (nodes.unsqueeze(0) - nodes.unsqueeze(1)).abs()
    return torch.minimum(direct, count - direct).float() / count


def main():
    torch.manual_seed(57)
    model = NodeEmbedding()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    for step in range(1_000_000):
        nodes = torch.randint(0, 200, (64,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            points = model(nodes)
        distances = pairwise(points.float())
        loss = (distances - hops(nodes)).pow(2).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step} stress {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
