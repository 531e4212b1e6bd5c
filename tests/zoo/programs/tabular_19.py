import torch
from torch import nn


class TwoTasks(nn.Module):
    def __init__(self, inputs=28, width=128):
        super().__init__()
        self.shared = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.price = nn.Linear(width, 1)
        self.region = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 16))

    def forward(self, rows, task):
        hidden = self.shared(rows)
        return self.region(hidden) if task == "region" else self.price(hidden).squeeze(1)


class Houses:
    def __init__(self, seed=69):
        self.generator = torch.Generator().manual_seed(seed)
        self.worth = torch.randn(28, generator=self.generator)
        self.place = torch.randn(28, 16, generator=self.generator)

    def sold(self, count=128):
        rows = torch.randn(count, 28, generator=self.generator)
        return rows, (rows @ self.worth).exp().log1p()

    def surveyed(self, count=512):
        rows = torch.randn(count, 28, generator=self.generator)
        return rows, (rows @ self.place).argmax(1)


def main():
    torch.manual_seed(69)
    houses = Houses()
    model = TwoTasks()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1_000_000):
        optimizer.zero_grad(set_to_none=True)
        rows, price = houses.sold()
        price_loss = nn.functional.huber_loss(model(rows, "price"), price)
        price_loss.backward()
        if step % 10 == 0:
            rows, region = houses.surveyed()
            region_loss = nn.functional.cross_entropy(model(rows, "region"), region)
            (0.2 * region_loss).backward()
        optimizer.step()
        if step % 20 == 0:
            print(
                f"step {step} price {price_loss.item():.4f} region {region_loss.item():.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
