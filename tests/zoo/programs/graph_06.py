import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self, nodes, dim=4):
        super().__init__()
        self.table = nn.Embedding(nodes, dim, sparse=True)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, left, right):
        return (self.table(left) * self.table(right)).sum(1) + self.bias


def link_scores(model):
    with torch.no_grad():
        vectors = model.table.weight
        return vectors @ vectors.T


def recall(model, links, top=10):
    scores = link_scores(model)
    ranked = scores.topk(top, dim=1).indices
    return (ranked[links[:, 0]] == links[:, 1:]).any(1).float().mean().item()


def edges(generator, nodes, count=512):
    left = torch.randint(0, nodes, (count,), generator=generator)
    right = (left + 1) % nodes
    other = torch.randint(0, nodes, (count,), generator=generator)
    return left, right, other


def main(nodes=2_000_000):
    torch.manual_seed(95)
    generator = torch.Generator().manual_seed(95)
    model = Embedder(nodes)
    table_optimizer = torch.optim.SGD([model.table.weight], lr=0.5)
    bias_optimizer = torch.optim.SGD([model.bias], lr=0.01)
    for step in range(1_000_000):
        left, right, other = edges(generator, nodes)
        near, far = model(left, right), model(left, other)
        loss = nn.functional.softplus(far - near).mean()
        table_optimizer.zero_grad()
        bias_optimizer.zero_grad()
        loss.backward()
        table_optimizer.step()
        bias_optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step == 60:
            print(f"recall {recall(model, torch.stack([left, right], 1)):.4f}", flush=True)


if __name__ == "__main__":
    main()
