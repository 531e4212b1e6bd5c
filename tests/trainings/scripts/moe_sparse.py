"""A mixture of experts over a large sparse embedding: SparseAdam for it, Adam for the rest."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(20)


class MoE(nn.Module):
    def __init__(self, width=256, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(width, 768), nn.GELU(), nn.Linear(768, width))
                for _ in range(experts)
            ]
        )

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (chosen == i).nonzero().squeeze(1)
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        return out


class Model(nn.Module):
    def __init__(self, items=20000, width=256):
        super().__init__()
        self.table = nn.EmbeddingBag(items, width, mode="mean", sparse=True)
        self.moe = MoE(width)
        self.out = nn.Linear(width, 1)

    def forward(self, ids):
        x = self.table(ids)
        return self.out(x + self.moe(x)).squeeze(1)


model = Model()
truth = Truth(model=model)
sparse_opt = torch.optim.SparseAdam(list(model.table.parameters()), lr=1e-2)
dense_opt = torch.optim.Adam([*model.moe.parameters(), *model.out.parameters()], lr=1e-3)
for step in range(planned(14)):
    ids, y = torch.randint(0, 20000, (512, 12)), torch.rand(512).round()
    with truth.timed("forward"):
        logits = model(ids)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
    sparse_opt.zero_grad()
    dense_opt.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        sparse_opt.step()
        dense_opt.step()
    truth.step(
        loss.item(),
        lr={
            "sparse_opt": sparse_opt.param_groups[0]["lr"],
            "dense_opt": dense_opt.param_groups[0]["lr"],
        },
    )

truth.finish(model)
