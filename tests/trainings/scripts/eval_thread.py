"""A copy of the model is evaluated in a thread beside the training, every few steps."""

import copy
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(208)
train_set = TensorDataset(torch.randn(512, 256), torch.randint(0, 10, (512,)))
val_set = TensorDataset(torch.randn(128, 256), torch.randint(0, 10, (128,)))
loader = DataLoader(train_set, batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
truth = Truth(model=model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def evaluate(snapshot):
    snapshot.eval()
    with torch.no_grad():
        x, y = val_set.tensors
        return sum(
            nn.functional.cross_entropy(snapshot(xs), ys).item()
            for xs, ys in zip(x.split(32), y.split(32))
        )


with ThreadPoolExecutor(1) as pool:
    step, steps, pending = 0, planned(16), None
    while step < steps:
        for x, y in loader:
            optimizer.zero_grad()
            with truth.timed("forward"):
                out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            with truth.timed("backward"):
                loss.backward()
            with truth.timed("optimizer"):
                optimizer.step()
            step += 1
            if step % 4 == 0:
                if pending is not None:
                    pending.result()
                pending = pool.submit(evaluate, copy.deepcopy(model))
            truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], samples=len(x))
            if step == steps:
                break

truth.finish(model)
