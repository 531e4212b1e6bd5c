"""Addition problem for a plain recurrent network over long sequences."""

import torch
from torch import nn


class Adder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.rnn = nn.RNN(2, width, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(width, 1)
        for name, parameter in self.rnn.named_parameters():
            if "weight_hh" in name:
                nn.init.normal_(parameter, std=0.15)

    def forward(self, series):
        hidden, _ = self.rnn(series)
        return self.out(hidden[:, -1]).squeeze(1)


def problems(generator, count=32, length=60):
    values = torch.rand(count, length, generator=generator)
    marks = torch.zeros(count, length)
    first = torch.randint(0, length // 2, (count, 1), generator=generator)
    second = torch.randint(length // 2, length, (count, 1), generator=generator)
    marks.scatter_(1, first, 1.0)
    marks.scatter_(1, second, 1.0)
    return torch.stack([values, marks], dim=2), (values * marks).sum(1)


def main():
    torch.manual_seed(66)
    generator = torch.Generator().manual_seed(67)
    model = Adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.003)
    for step in range(1_000_000):
        series, sums = problems(generator)
        loss = nn.functional.mse_loss(model(series), sums)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
