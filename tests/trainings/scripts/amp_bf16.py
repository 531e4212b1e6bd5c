"""Mixed precision with bfloat16: the scaler is left in the code and switched off."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(12)
use_fp16 = False
model = nn.Sequential(
    nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(model=model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled=use_fp16)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5000)

for step in range(planned(14)):
    x, y = torch.randn(32, 512), torch.randint(0, 10, (32,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with truth.timed("forward"):
            logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
    with truth.timed("backward"):
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    lr = scheduler.get_last_lr()[0]
    with truth.timed("optimizer"):
        scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    truth.step(loss.item(), lr=lr, norm=norm.item())

truth.finish(model)
