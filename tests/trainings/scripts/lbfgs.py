"""LBFGS with a closure, as in pytorch/examples/time_sequence_prediction."""

import torch
import torch.nn as nn
from truth import Truth, planned

torch.manual_seed(0)
x = torch.randn(256, 128)
y = torch.sin(x @ torch.randn(128, 4))

seq = nn.Sequential(
    nn.Linear(128, 768), nn.Tanh(), nn.Linear(768, 256), nn.Tanh(), nn.Linear(256, 4)
)
truth = Truth(seq=seq)
criterion = nn.MSELoss()
optimizer = torch.optim.LBFGS(seq.parameters(), lr=0.2, max_iter=4, history_size=4)

for i in range(planned(12)):
    seen = []

    def closure():
        optimizer.zero_grad()
        with truth.timed("forward"):
            out = seq(x)
        loss = criterion(out, y)
        with truth.timed("backward"):
            loss.backward()
        seen.append(loss.item())
        return loss

    with truth.timed("optimizer"):
        loss = optimizer.step(closure)
    print("STEP:", i, "loss:", loss.item())
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], mean_loss=sum(seen) / len(seen))

truth.finish(seq)
