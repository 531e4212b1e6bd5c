"""A transformer whose matrices Muon steps and all else AdamW, as modded-nanogpt has it."""

import torch
from torch import nn
from torch.nn import functional as F
from truth import Truth, planned

torch.manual_seed(86)
VOCAB, DIM, LENGTH = 200, 128, 32


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                buf = state["momentum_buffer"]
                buf.lerp_(p.grad, 1 - group["momentum"])
                x = p.grad.lerp(buf, group["momentum"])
                x = x / (x.norm() + 1e-7)
                for _ in range(3):  # Newton-Schulz
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                p.add_(x, alpha=-group["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(DIM, 4 * DIM, bias=False), nn.GELU(), nn.Linear(4 * DIM, DIM, bias=False)
        )

    def forward(self, x):
        q, k, v = (t.unsqueeze(1) for t in self.qkv(F.rms_norm(x, (DIM,))).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1))
        return x + self.mlp(F.rms_norm(x, (DIM,)))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, idx, targets):
        x = self.embed(idx)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.lm_head(x).flatten(0, 1), targets.flatten())


model = GPT()
truth = Truth(model=model)
optimizer1 = torch.optim.AdamW([*model.embed.parameters(), *model.lm_head.parameters()], lr=3e-3)
optimizer2 = Muon(model.blocks.parameters(), lr=0.02)
optimizers = [optimizer1, optimizer2]
for opt in optimizers:
    for group in opt.param_groups:
        group["initial_lr"] = group["lr"]
schedulers = [
    torch.optim.lr_scheduler.LambdaLR(o, lambda s: max(0.1, 1 - s / 40)) for o in optimizers
]
for step in range(planned(14)):
    idx = torch.randint(0, VOCAB, (16, LENGTH + 1))
    with truth.timed("forward"):
        loss = model(idx[:, :-1], idx[:, 1:])
    with truth.timed("backward"):
        loss.backward()
    rates = {
        "optimizer1": optimizer1.param_groups[0]["lr"],
        "optimizer2": optimizer2.param_groups[0]["lr"],
    }
    for opt, scheduler in zip(optimizers, schedulers):
        with truth.timed("optimizer"):
            opt.step()
        scheduler.step()
    model.zero_grad(set_to_none=True)
    truth.step(loss.item(), lr=rates)

truth.finish(model)
