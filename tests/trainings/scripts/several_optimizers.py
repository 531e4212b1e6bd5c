"""One model, three optimizers: one for matrices, one for embeddings, one for what is left."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(33)


class LM(nn.Module):
    def __init__(self, vocab=2000, width=384):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    nn.LayerNorm(width), nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, width)
                )
                for _ in range(2)
            ]
        )
        self.head = nn.Linear(width, 64)

    def forward(self, ids):
        x = self.wte(ids)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


model = LM()
truth = Truth(model=model)
matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
small = [
    p
    for p in [*model.blocks.parameters(), *model.head.parameters()]
    if p.ndim < 2 or p.shape[0] == 64
]
optimizers = [
    torch.optim.SGD(matrices, lr=0.02, momentum=0.95, nesterov=True),
    torch.optim.AdamW(model.wte.parameters(), lr=3e-3),
    torch.optim.AdamW(small, lr=1e-3),
]
schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, 0.995) for o in optimizers]

for step in range(planned(14)):
    ids = torch.randint(0, 2000, (8, 24))
    with truth.timed("forward"):
        logits = model(ids)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), (ids % 64).flatten())
    with truth.timed("backward"):
        loss.backward()
    rates = {f"optimizers[{i}]": o.param_groups[0]["lr"] for i, o in enumerate(optimizers)}
    for opt, sched in zip(optimizers, schedulers):
        with truth.timed("optimizer"):
            opt.step()
        sched.step()
    model.zero_grad(set_to_none=True)
    truth.step(loss.item(), lr=rates)

truth.finish(model)
