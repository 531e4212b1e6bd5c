"""A graph network whose messages are gathered by a plain scatter."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(22)


class GraphConv(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(2 * width, width)
        self.update = nn.GRUCell(width, width)

    def forward(self, h, edges):
        src, dst = edges
        m = torch.relu(self.message(torch.cat([h[src], h[dst]], 1)))
        return self.update(torch.zeros_like(h).index_add_(0, dst, m), h)


class GNN(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.encode = nn.Linear(16, width)
        self.convs = nn.ModuleList([GraphConv(width) for _ in range(3)])
        self.readout = nn.Linear(width, 1)

    def forward(self, x, edges, graph, graphs):
        h = self.encode(x)
        for conv in self.convs:
            h = conv(h, edges)
        pooled = torch.zeros(graphs, h.size(1)).scatter_add_(0, graph[:, None].expand_as(h), h)
        return self.readout(pooled).squeeze(1)


def collate(graphs=16):
    sizes = torch.randint(10, 40, (graphs,))
    graph = torch.repeat_interleave(torch.arange(graphs), sizes)
    n = len(graph)
    return torch.randn(n, 16), torch.randint(0, n, (2, 3 * n)), graph, torch.randn(graphs)


gnn = GNN()
truth = Truth(gnn=gnn)
optimizer = torch.optim.Adam(gnn.parameters(), lr=1e-3, weight_decay=5e-4)
for step in range(planned(16)):
    x, edges, graph, y = collate()
    optimizer.zero_grad()
    with truth.timed("forward"):
        out = gnn(x, edges, graph, len(y))
    loss = (out - y).square().mean()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(gnn)
