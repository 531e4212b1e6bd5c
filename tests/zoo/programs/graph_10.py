# Node classification on one graph; GCN layers plus spectral positions of the nodes.
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(4)


def make_graph(nodes=420, classes=6, feats=48, seed=4):
    """Planted communities; the features are weak, so the neighbours have to help."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, size=nodes)
    same = y[:, None] == y[None, :]
    upper = np.triu(rng.random((nodes, nodes)) < np.where(same, 0.05, 0.008), 1)
    adj = (upper | upper.T).astype(np.float32)
    centers = rng.normal(scale=0.5, size=(classes, feats))
    x = centers[y] + rng.normal(size=(nodes, feats))
    train = rng.random(nodes) < 0.4
    return (
        torch.tensor(adj),
        torch.tensor(x, dtype=torch.float32),
        torch.tensor(y),
        torch.tensor(train),
    )


def normalize(adj):
    a = adj + torch.eye(adj.shape[0])
    d = a.sum(1).rsqrt()
    return d[:, None] * a * d[None, :]


def spectral_positions(adj, k):
    """The k smoothest eigenvectors of the normalised Laplacian."""
    lap = torch.eye(adj.shape[0]) - normalize(adj)
    _, vectors = torch.linalg.eigh(lap)
    return vectors[:, 1 : k + 1] * adj.shape[0] ** 0.5


class GraphConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.own = nn.Linear(cin, cout)
        self.neigh = nn.Linear(cin, cout, bias=False)

    def forward(self, x, a):
        return self.own(x) + a @ self.neigh(x)


class SpectralGCN(nn.Module):
    def __init__(self, feats, classes, hidden=64, positions=12):
        super().__init__()
        self.positions = positions
        self.lift = nn.Linear(feats + positions, hidden)
        self.convs = nn.ModuleList([GraphConv(hidden, hidden) for _ in range(3)])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in range(3)])
        self.head = nn.Linear(hidden, classes)

    def forward(self, x, adj):
        a = normalize(adj)
        pos = spectral_positions(adj, self.positions)
        h = self.lift(torch.cat([x, pos], dim=1))
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.dropout(F.relu(conv(norm(h), a)), 0.3, self.training)
        return self.head(h)


adj, x, y, train = make_graph()
model = SpectralGCN(x.shape[1], int(y.max()) + 1)
opt = torch.optim.Adam(model.parameters(), lr=3e-4, weight_decay=1e-3)
best = 0.0
for step in range(1, 40_001):
    model.train()
    logits = model(x, adj)
    loss = F.cross_entropy(logits[train], y[train], label_smoothing=0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        model.eval()
        with torch.no_grad():
            guess = model(x, adj).argmax(1)
        held_out = (guess == y)[~train].float().mean().item()
        best = max(best, held_out)
        print(
            f"step {step} loss {loss.item():.3f} held-out {held_out:.3f} (best {best:.3f})",
            flush=True,
        )
