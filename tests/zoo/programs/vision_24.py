import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


class Mixer(nn.Module):
    def __init__(self, tokens=16, width=64):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.across = nn.Linear(tokens, tokens)
        self.norm2 = nn.LayerNorm(width)
        self.within = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, hidden):
        hidden = hidden + self.across(self.norm1(hidden).transpose(1, 2)).transpose(1, 2)
        return hidden + self.within(self.norm2(hidden))


class MixerNet(nn.Module):
    def __init__(self, width=64, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 6, stride=6)
        self.mixers = nn.Sequential(Mixer(width=width), Mixer(width=width))
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.mixers(tokens).mean(1))


def stripes(generator, count=32):
    labels = torch.randint(0, 10, (count,), generator=generator)
    ticks = torch.arange(24).float()
    wave = torch.sin(ticks * (labels + 1).view(-1, 1) * 0.25)
    images = wave.view(count, 1, 1, 24).expand(count, 3, 24, 24)
    return images + 0.5 * torch.randn(count, 3, 24, 24, generator=generator), labels


def main(warmup=400):
    torch.manual_seed(56)
    generator = torch.Generator().manual_seed(56)
    model = MixerNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, step / warmup))
    for step in range(1_000_000):
        images, labels = stripes(generator)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(
                f"step {step} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
