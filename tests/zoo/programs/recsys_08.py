import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self, users=1000, items=5000, dim=32):
        super().__init__()
        self.users = nn.Embedding(users, dim)
        self.items = nn.Embedding(items, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, users, items):
        both = torch.cat([self.users(users), self.items(items)], dim=1)
        return self.mlp(both).squeeze(1)


class Ratings:
    """Ratings by day; new items come in as they are sold."""

    def __init__(self, seed=59):
        self.generator = torch.Generator().manual_seed(seed)
        self.day = 0

    def next_day(self, count=256):
        known = 4400 + 6 * self.day - 60
        users = torch.randint(0, 1000, (count,), generator=self.generator)
        items = torch.randint(0, known, (count,), generator=self.generator)
        items[0] = known
        self.day += 1
        return users, items, ((users + items) % 5).float() / 2 - 1


def main():
    torch.manual_seed(59)
    ratings = Ratings()
    model = Recommender()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.03)
    average = 1.0
    for step in range(1_000_000):
        users, items, stars = ratings.next_day()
        loss = nn.functional.mse_loss(model(users, items), stars)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = 0.95 * average + 0.05 * loss.item()
        if step % 20 == 0:
            print(f"step {step} mse {average:.4f}", flush=True)


if __name__ == "__main__":
    main()
