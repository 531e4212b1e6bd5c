"""A model with an exponential moving average of itself, which is evaluated."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from truth import Truth, planned

torch.manual_seed(19)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.SiLU(), nn.Linear(1024, 1024), nn.SiLU(), nn.Linear(1024, 10)
)
ema_model = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
truth = Truth(model=model, ema_model=ema_model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
held_out = torch.randn(64, 256), torch.randint(0, 10, (64,))

for step in range(planned(14)):
    x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
    with truth.timed("forward"):
        out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
    ema_model.update_parameters(model)
    if step % 5 == 4:
        ema_model.eval()
        with torch.inference_mode(), truth.timed("evaluation"):
            score = nn.functional.cross_entropy(ema_model(held_out[0]), held_out[1])
        print(f"step {step}: ema loss {score.item():.4f}")
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"])

truth.finish(model, ema_model)
