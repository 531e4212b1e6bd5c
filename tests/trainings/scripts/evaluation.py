"""A classifier evaluated every few steps on held-out batches, with the best one kept."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned

torch.manual_seed(34)
train_set = TensorDataset(torch.randn(4096, 1, 20, 20), torch.randint(0, 10, (4096,)))
val_set = TensorDataset(torch.randn(96, 1, 20, 20), torch.randint(0, 10, (96,)))
train_loader = DataLoader(train_set, batch_size=24, shuffle=True)
val_loader = DataLoader(val_set, batch_size=48)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * 64, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        x = torch.flatten(nn.functional.max_pool2d(x, 2), 1)
        return self.fc2(torch.relu(self.fc1(x)))


def evaluate(model):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in val_loader:
            total += nn.functional.cross_entropy(model(x), y).item()
    model.train()
    return total / len(val_loader)


model = ConvNet()
truth = Truth(model=model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.995)
best, best_state = float("inf"), None
step, steps = 0, planned(14)
while step < steps:
    for x, y in train_loader:
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
        step += 1
        if step % 4 == 0:
            with truth.timed("evaluation"):
                score = evaluate(model)
            if score < best:
                best, best_state = score, copy.deepcopy(model.state_dict())
        truth.step(loss.item(), lr=lr)
        if step == steps:
            break

truth.finish(model)
