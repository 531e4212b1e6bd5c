"""A short fixed-budget run that writes its model at the end."""

import torch
from torch import nn


class Counter(nn.Module):
    """Counts the dots of an image."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.conv2 = nn.Conv2d(12, 12, 3, padding=1)
        self.density = nn.Conv2d(12, 1, 1)

    def forward(self, images):
        hidden = torch.relu(self.conv2(torch.relu(self.conv1(images))))
        return nn.functional.softplus(self.density(hidden)).sum((1, 2, 3))


def dots(generator, count=24, size=24):
    images = (torch.rand(count, 1, size, size, generator=generator) < 0.02).float()
    numbers = images.sum((1, 2, 3))
    return images + 0.1 * torch.randn(images.shape, generator=generator), numbers


def main(steps=200):
    torch.manual_seed(98)
    generator = torch.Generator().manual_seed(98)
    model = Counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for step in range(steps):
        images, numbers = dots(generator)
        loss = nn.functional.smooth_l1_loss(model(images), numbers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        images, numbers = dots(generator, count=256)
        error = (model(images) - numbers).abs().mean().item()
    torch.save(model.state_dict(), "counter.pt")
    print(f"mean error {error:.3f}, saved to counter.pt", flush=True)


if __name__ == "__main__":
    main()
