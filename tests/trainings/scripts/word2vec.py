"""Word vectors with sparse gradients, by SparseAdam, beside a dense layer with Adam."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(76)


class Vectors(nn.Module):
    def __init__(self, words=20_000, size=256):
        super().__init__()
        self.u = nn.Embedding(words, size, sparse=True)
        self.v = nn.Embedding(words, size, sparse=True)
        self.proj = nn.Linear(size, size)

    def forward(self, centre, context, negative):
        c = self.proj(self.u(centre))
        good = (c * self.v(context)).sum(1)
        bad = torch.bmm(self.v(negative), c[:, :, None]).squeeze(2)
        return -(nn.functional.logsigmoid(good) + nn.functional.logsigmoid(-bad).sum(1)).mean()


model = Vectors()
truth = Truth(model=model)
sparse = torch.optim.SparseAdam([model.u.weight, model.v.weight], lr=1e-3)
dense = torch.optim.Adam(model.proj.parameters(), lr=2e-3)
for step in range(planned(14)):
    words = torch.randint(0, 20_000, (512,)), torch.randint(0, 20_000, (512,))
    sparse.zero_grad()
    dense.zero_grad()
    with truth.timed("forward"):
        loss = model(*words, torch.randint(0, 20_000, (512, 10)))
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        sparse.step()
    with truth.timed("optimizer"):
        dense.step()
    truth.step(
        loss.item(),
        lr={"sparse": sparse.param_groups[0]["lr"], "dense": dense.param_groups[0]["lr"]},
    )

truth.finish(model)
