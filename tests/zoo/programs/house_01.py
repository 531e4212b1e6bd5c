"""Two questions about each house: what it costs, and whether it sells within a month."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES = 20


class Houses(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.price = nn.Linear(width, 1)
        self.sale = nn.Linear(width, 1)

    def forward(self, houses):
        hidden = self.trunk(houses)
        return self.price(hidden).squeeze(1), self.sale(hidden).squeeze(1)


def market(count, seed=41):
    generator = torch.Generator().manual_seed(seed)
    houses = torch.randn(count, FEATURES, generator=generator)
    price = 310 + 60 * houses[:, 0] + 45 * houses[:, 1] + 25 * houses[:, 2].abs()
    price = price + 30 * torch.randn(count, generator=generator)
    wish = 2 * houses[:, 5] * houses[:, 6] + houses[:, 7]
    sold = (wish + 0.3 * torch.randn(count, generator=generator) > 0).float()
    return TensorDataset(houses, price - price.mean(), sold)  # thousands, around their mean


class Trainer:
    def __init__(self, model, lr=0.02):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def step(self, houses, price, sold):
        self.model.train()
        guess, chance = self.model(houses)
        price_loss = nn.functional.mse_loss(guess, price)
        sale_loss = nn.functional.binary_cross_entropy_with_logits(chance, sold)
        loss = price_loss + sale_loss
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        error, right, count = 0.0, 0.0, 0
        for houses, price, sold in loader:
            guess, chance = self.model(houses)
            error += (guess - price).abs().sum().item()
            right += ((chance > 0) == (sold > 0.5)).sum().item()
            count += len(price)
        return error / count, right / count


def main():
    torch.set_num_threads(1)
    torch.manual_seed(41)
    trained, held = torch.utils.data.random_split(market(6000), [5000, 1000])
    loader = DataLoader(trained, batch_size=100, shuffle=True)
    trainer = Trainer(Houses())
    step = 0
    for epoch in range(1, 10_000):
        for batch in loader:
            loss = trainer.step(*batch)
            step += 1
            if step % 50 == 0:
                print(f"step {step} loss {loss:.2f}", flush=True)
        if epoch % 10 == 0:
            error, right = trainer.evaluate(DataLoader(held, batch_size=500))
            print(f"epoch {epoch} price off by {error:.1f} sale right {right:.3f}", flush=True)


if __name__ == "__main__":
    main()
