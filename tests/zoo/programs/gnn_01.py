"""Node classification with GraphSAGE on sampled subgraphs, two processes with averaged gradients."""

import os
import signal
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

NODES, CLASSES, FEATS, DIM, BATCH, FANOUT = 8000, 8, 64, 128, 128, 8
MAX_SECONDS = 600


class Graph:
    """Nodes of a class link mostly to the same class; features are weak."""

    def __init__(self):
        g = torch.Generator().manual_seed(42)
        self.y = torch.randint(CLASSES, (NODES,), generator=g)
        self.x = torch.randn(NODES, FEATS, generator=g)
        self.x[:, :CLASSES] += 0.6 * F.one_hot(self.y, CLASSES)
        by_class = [(self.y == c).nonzero().squeeze(1) for c in range(CLASSES)]
        anyone = torch.randint(NODES, (NODES, 24), generator=g)
        alike = torch.stack(
            [
                by_class[c][torch.randint(len(by_class[c]), (24,), generator=g)]
                for c in self.y.tolist()
            ]
        )
        self.nbr = torch.where(torch.rand(NODES, 24, generator=g) < 0.6, alike, anyone)

    def sample(self, nodes):
        pick = torch.randint(self.nbr.shape[1], (len(nodes), FANOUT))
        return self.nbr[nodes].gather(1, pick)


class SAGE(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(2 * FEATS, DIM), nn.Linear(2 * DIM, DIM)
        self.out = nn.Linear(DIM, CLASSES)
        self.drop = nn.Dropout(0.3)

    def layer1(self, graph, nodes):
        near = graph.x[graph.sample(nodes)].mean(1)
        return F.relu(self.l1(torch.cat([graph.x[nodes], near], -1)))

    def forward(self, graph, nodes):
        near = graph.sample(nodes)
        h_near = self.layer1(graph, near.flatten()).view(*near.shape, -1).mean(1)
        h = torch.cat([self.layer1(graph, nodes), h_near], -1)
        return self.out(self.drop(F.relu(self.l2(h))))


def average_gradients(model, world):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    flat /= world
    for g, piece in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(piece.view_as(g))


def train(rank, world, port):
    signal.alarm(MAX_SECONDS + 20)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(1234 + rank)
    graph = Graph()
    model = SAGE()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-4)
    started, step = time.time(), 0
    while True:
        nodes = torch.randint(NODES // 2, (BATCH,))
        loss = F.cross_entropy(model(graph, nodes), graph.y[nodes])
        opt.zero_grad()
        loss.backward()
        average_gradients(model, world)
        opt.step()
        step += 1
        if step % 100 == 0:
            stop = torch.tensor(float(time.time() - started > MAX_SECONDS))
            dist.broadcast(stop, 0)
            if rank == 0:
                model.eval()
                with torch.no_grad():
                    test = torch.randint(NODES // 2, NODES, (512,))
                    acc = (model(graph, test).argmax(1) == graph.y[test]).float().mean().item()
                model.train()
                print(f"step {step} loss {loss.item():.3f} test acc {acc:.3f}", flush=True)
            if stop:
                break
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(train, args=(2, free_port()), nprocs=2)
