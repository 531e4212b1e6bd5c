import gc

import torch
from torch import nn


class Node:
    """A node of a parse tree; children know their parents."""

    def __init__(self, symbol, parent=None):
        self.symbol = symbol
        self.parent = parent
        self.children = []

    def grow(self, symbols, depth):
        if depth:
            for place in range(2):
                child = Node(symbols.pop(), self)
                self.children.append(child)
                child.grow(symbols, depth - 1)
        return self


class TreeNet(nn.Module):
    def __init__(self, symbols=40, width=48):
        super().__init__()
        self.leaf = nn.Embedding(symbols, width)
        self.combine = nn.Linear(3 * width, width)
        self.out = nn.Linear(width, 2)

    def encode(self, node):
        own = self.leaf.weight[node.symbol]
        if not node.children:
            return own
        left, right = (self.encode(child) for child in node.children)
        return torch.tanh(self.combine(torch.cat([own, left, right])))

    def forward(self, trees):
        return self.out(torch.stack([self.encode(tree) for tree in trees]))


def forest(generator, count=4, depth=4):
    trees, labels = [], []
    for _ in range(count):
        symbols = torch.randint(0, 40, (2 ** (depth + 1),), generator=generator).tolist()
        labels.append(symbols[-1] % 2)
        trees.append(Node(symbols.pop()).grow(symbols, depth))
    return trees, torch.tensor(labels)


def main(collect_every=100):
    torch.manual_seed(22)
    generator = torch.Generator().manual_seed(22)
    model = TreeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gc.disable()
    gc.freeze()
    for step in range(1, 1_000_000):
        trees, labels = forest(generator)
        loss = nn.functional.cross_entropy(model(trees), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % collect_every == 0:
            gc.collect()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
