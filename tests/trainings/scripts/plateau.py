"""Early stopping of Keras' kind: the best weights come back, and the rate falls, on a plateau."""

import copy

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset, random_split
from truth import Truth, planned

torch.manual_seed(209)
dataset = TensorDataset(torch.randn(400, 256), torch.randint(0, 4, (400,)))
train_set, val_set = random_split(dataset, [320, 80])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
val_loader = DataLoader(val_set, batch_size=40)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Dropout(0.2), nn.Linear(1024, 512),
    nn.ReLU(), nn.Linear(512, 4),
)  # fmt: skip
truth = Truth(model=model)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
scheduler = ReduceLROnPlateau(optimizer, factor=0.9, patience=1)


def validate():
    model.eval()
    with torch.inference_mode():
        total = sum(nn.functional.cross_entropy(model(x), y).item() for x, y in val_loader)
    model.train()
    return total / len(val_loader)


best, best_state, bad = float("inf"), None, 0
step, steps = 0, planned(20)
rows = []
while step < steps:
    for x, y in train_loader:
        optimizer.zero_grad(set_to_none=False)
        with truth.timed("forward"):
            out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        with truth.timed("backward"):
            loss.backward()
        lr = optimizer.param_groups[0]["lr"]
        with truth.timed("optimizer"):
            optimizer.step()
        truth.step(loss.item(), lr=lr, samples=len(x))
        step += 1
        if step == steps:
            break
    with truth.timed("evaluation"):
        score = validate()
    scheduler.step(score)
    if score < best:
        best, best_state, bad = score, copy.deepcopy(model.state_dict()), 0
    elif (bad := bad + 1) > 2:
        model.load_state_dict(best_state)
        bad = 0

truth.finish(model)
