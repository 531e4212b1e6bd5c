"""Energy demand of buildings from weather and calendar."""

import torch
from torch import nn


class Demand(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.weather = nn.Linear(8, width)
        self.calendar = nn.Embedding(168, width)
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, weather, hour):
        mixed = nn.functional.leaky_relu(self.weather(weather) + self.calendar(hour))
        return self.out(nn.functional.leaky_relu(self.hidden(mixed))).squeeze(1)


def simulate(count=20_000, seed=23):
    generator = torch.Generator().manual_seed(seed)
    weather = torch.randn(count, 8, generator=generator) * torch.tensor([12.0] + [1.0] * 7)
    hour = torch.randint(0, 168, (count,), generator=generator)
    demand = 30 + 0.8 * weather[:, 0] + 10 * torch.sin(hour / 24 * 6.28)
    return weather, hour, demand


def main(lr=0.02, batch_size=64):
    torch.manual_seed(23)
    weather, hour, demand = simulate()
    model = Demand()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    step = 0
    for epoch in range(100_000):
        for picked in torch.randperm(len(demand)).split(batch_size):
            predicted = model(weather[picked], hour[picked])
            loss = nn.functional.mse_loss(predicted, demand[picked])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} mse {loss.item():.3g}", flush=True)


if __name__ == "__main__":
    main()
