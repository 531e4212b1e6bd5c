"""A training resumed from a checkpoint at step 500, with optimizer and scheduler."""

import io

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(40)


def build():
    model = nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100_000)
    return model, optimizer, scheduler


def old_checkpoint():
    """What a job that was preempted has left behind."""
    model, optimizer, scheduler = build()
    state = optimizer.state_dict()
    for index, p in enumerate(model.parameters()):
        moments = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.full_like(p, 1e-4)}
        state["state"][index] = {"step": torch.tensor(500.0), **moments}
    schedule = {**scheduler.state_dict(), "last_epoch": 500, "_step_count": 501}
    file = io.BytesIO()
    torch.save(
        {"model": model.state_dict(), "optimizer": state, "scheduler": schedule, "step": 500}, file
    )
    file.seek(0)
    return file


model, optimizer, scheduler = build()
checkpoint = torch.load(old_checkpoint())
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
scheduler.load_state_dict(checkpoint["scheduler"])
start = checkpoint["step"]
truth = Truth(model=model)

for step in range(start, start + planned(14)):
    x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
    with truth.timed("forward"):
        out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    lr = optimizer.param_groups[0]["lr"]
    with truth.timed("optimizer"):
        optimizer.step()
    scheduler.step()
    truth.step(loss.item(), lr=lr, number=step)

truth.finish(model)
