"""A little diffusion model on periodic curves."""

import torch
from torch import nn


class Denoise(nn.Module):
    def __init__(self, length=64, width=128):
        super().__init__()
        self.time = nn.Embedding(100, width)
        self.inputs = nn.Linear(length, width)
        self.drop = nn.Dropout(0.1)
        self.middle = nn.Linear(width, width)
        self.outputs = nn.Linear(width, length)

    def forward(self, noisy, time):
        hidden = torch.relu(self.inputs(noisy) + self.time(time))
        hidden = torch.relu(self.middle(self.drop(hidden)))
        return self.outputs(hidden)


class Curves:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, count=64):
        phase = torch.rand(count, 1, generator=self.generator) * 6.28
        speed = 0.1 + 0.3 * torch.rand(count, 1, generator=self.generator)
        return torch.sin(phase + speed * torch.arange(64))


def diffuse(curves, seed=1234):
    torch.manual_seed(seed)
    time = torch.randint(0, 100, (len(curves),))
    noise = torch.randn_like(curves)
    keep = (1 - time / 100).unsqueeze(1)
    return keep.sqrt() * curves + (1 - keep).sqrt() * noise, noise, time


def main():
    curves = Curves(85)
    model = Denoise()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    average = None
    for step in range(1_000_000):
        noisy, noise, time = diffuse(curves.draw())
        loss = nn.functional.mse_loss(model(noisy, time), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = loss.item() if average is None else 0.98 * average + 0.02 * loss.item()
        if step % 20 == 0:
            print(f"step {step} loss {average:.4f}", flush=True)


if __name__ == "__main__":
    main()
