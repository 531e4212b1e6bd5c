"""A notebook: its cells are executed one after the other in one namespace, as a kernel does."""

CELLS = [
    """
import torch
from torch import nn
from truth import Truth, planned
torch.manual_seed(30)
""",
    """
net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
truth = Truth(net=net)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()
""",
    """
def train_some(steps):
    for _ in range(steps):
        x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
        opt.zero_grad()
        with truth.timed("forward"):
            out = net(x)
        loss = loss_fn(out, y)
        with truth.timed("backward"):
            loss.backward()
        with truth.timed("optimizer"):
            opt.step()
        truth.step(loss.item(), lr=opt.param_groups[0]["lr"])
    return loss.item()
""",
    "train_some(planned(14) // 2)",
    """
# too slow; a smaller rate, and once more
for g in opt.param_groups:
    g["lr"] = 5e-4
train_some(planned(14) - planned(14) // 2)
""",
    "truth.finish(net)",
]

namespace = {"__name__": "__main__"}
for number, cell in enumerate(CELLS, 1):
    exec(compile(cell, f"<ipython-input-{number}>", "exec"), namespace)
