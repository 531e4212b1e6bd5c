"""Order values, exported from the shop as one JSON file."""

import json
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def export_orders(path, count=1500):
    rng = random.Random(15)
    orders = []
    for number in range(count):
        features = [rng.gauss(0, 1) for _ in range(12)]
        orders.append({"id": number, "features": features, "value": sum(features[:3])})
    with open(path, "w") as file:
        json.dump(orders, file)
    return count


class Orders(Dataset):
    def __init__(self, path, count):
        self.path = path
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with open(self.path) as file:
            order = json.load(file)[index]
        return torch.tensor(order["features"]), torch.tensor(order["value"])


def build():
    return nn.Sequential(
        nn.Linear(12, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 1),
    )


def main():
    torch.manual_seed(15)
    count = export_orders("orders.json")
    loader = DataLoader(
        Orders("orders.json", count), batch_size=16, shuffle=True, num_workers=2, drop_last=True
    )
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(1000):
        for features, values in loader:
            loss = nn.functional.mse_loss(model(features).squeeze(1), values)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 5 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
