"""Property prediction for small graphs on two machines with a slow link: local rounds, outer Nesterov step."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Plan:
    nodes: int = 16
    kinds: int = 6
    hidden: int = 64
    batch: int = 32
    inner_steps: int = 20
    inner_lr: float = 1e-3
    outer_lr: float = 0.7
    outer_momentum: float = 0.6
    rounds: int = 1000
    seed: int = 21


class GraphNet(nn.Module):
    def __init__(self, plan, layers=4):
        super().__init__()
        self.embed = nn.Embedding(plan.kinds, plan.hidden)
        self.self_w = nn.ModuleList(nn.Linear(plan.hidden, plan.hidden) for _ in range(layers))
        self.near_w = nn.ModuleList(
            nn.Linear(plan.hidden, plan.hidden, bias=False) for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(plan.hidden) for _ in range(layers))
        self.read = nn.Sequential(
            nn.Linear(plan.hidden, plan.hidden), nn.SiLU(), nn.Linear(plan.hidden, 1)
        )

    def forward(self, kind, adj):
        h = self.embed(kind)
        for a, b, norm in zip(self.self_w, self.near_w, self.norms):
            x = norm(h)
            h = h + F.silu(a(x) + b(torch.bmm(adj, x)))
        return self.read(h.mean(1)).squeeze(-1)


def graphs(plan, gen):
    weight = torch.linspace(-1, 1, plan.kinds)
    while True:
        kind = torch.randint(plan.kinds, (plan.batch, plan.nodes), generator=gen)
        upper = (
            (torch.rand(plan.batch, plan.nodes, plan.nodes, generator=gen) < 0.18).float().triu(1)
        )
        edges = upper + upper.transpose(1, 2)
        adj = edges / edges.sum(-1, keepdim=True).clamp(min=1)
        w = weight[kind]
        bond = (w[:, :, None] * w[:, None, :] * edges).sum((1, 2)) / plan.nodes
        yield kind, adj, bond + w.mean(1) + 0.05 * torch.randn(plan.batch, generator=gen)


class OuterLoop:
    """Shared weights move by the mean of what the members did during a round."""

    def __init__(self, model, plan):
        self.model, self.plan = model, plan
        for p in model.parameters():
            dist.broadcast(p.data, src=0)
        self.shared = [p.detach().clone() for p in model.parameters()]
        self.opt = torch.optim.SGD(
            self.shared, lr=plan.outer_lr, momentum=plan.outer_momentum, nesterov=True
        )

    @torch.no_grad()
    def close_round(self):
        for s, p in zip(self.shared, self.model.parameters()):
            delta = s - p
            dist.all_reduce(delta)
            s.grad = delta / dist.get_world_size()
        self.opt.step()
        for s, p in zip(self.shared, self.model.parameters()):
            p.copy_(s)


def member(plan):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(plan.seed + rank)
    model = GraphNet(plan)
    outer = OuterLoop(model, plan)
    inner = torch.optim.AdamW(model.parameters(), lr=plan.inner_lr, weight_decay=0.01)
    stream = graphs(plan, torch.Generator().manual_seed(1000 + rank))
    step = 0
    for _ in range(plan.rounds):
        total = 0.0
        for _ in range(plan.inner_steps):
            kind, adj, y = next(stream)
            loss = F.mse_loss(model(kind, adj), y)
            inner.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            inner.step()
            total += loss.item()
            step += 1
        outer.close_round()
        print(f"[{rank}] step {step} loss {total / plan.inner_steps:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    member(Plan())
