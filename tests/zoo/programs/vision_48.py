"""Adapters in a frozen residual net, with accumulated gradients."""

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)

CLASSES, SIDE, MICRO, ACCUMULATE = 8, 24, 24, 4


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


class Adapter(nn.Module):
    """Starts as the identity: the second projection is zero."""

    def __init__(self, width, rank=8):
        super().__init__()
        self.down, self.up = nn.Conv2d(width, rank, 1), nn.Conv2d(rank, width, 1)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return x + self.up(F.relu(self.down(x)))


class AdaptedNet(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(depth))
        self.adapters = nn.ModuleList(Adapter(width) for _ in range(depth))
        self.head = nn.Linear(9 * width, CLASSES)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block, adapter in zip(self.blocks, self.adapters):
            x = adapter(block(x))
        return self.head(F.adaptive_avg_pool2d(x, 3).flatten(1))

    def freeze_backbone(self):
        for part in (self.stem, self.blocks):
            part.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.blocks.eval()  # the statistics of the backbone stay as they were
        return self


class Textures:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.basis = torch.randn(CLASSES, 3, SIDE, SIDE, generator=self.generator)
        self.basis = F.avg_pool2d(self.basis, 5, stride=1, padding=2) * 5

    def batch(self, size):
        labels = torch.randint(0, CLASSES, (size,), generator=self.generator)
        noise = torch.randn(size, 3, SIDE, SIDE, generator=self.generator)
        return 0.4 * self.basis[labels] + noise, labels


def main():
    torch.manual_seed(30)
    data = Textures(31)
    model = AdaptedNet()
    model.freeze_backbone()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda update: min(1.0, (update + 1) / 50)
    )
    model.train()
    running = 0.0
    for step in range(1_000_000):
        images, labels = data.batch(MICRO)
        loss = F.cross_entropy(model(images), labels)
        (loss / ACCUMULATE).backward()
        running += loss.item()
        if (step + 1) % ACCUMULATE == 0:
            nn.utils.clip_grad_norm_(trained, 2.0)
            optimizer.step()
            warmup.step()
            optimizer.zero_grad()
        if (step + 1) % 40 == 0:
            print(
                f"step {step + 1} loss {running / 40:.4f} rate {warmup.get_last_lr()[0]:.5f}",
                flush=True,
            )
            running = 0.0


if __name__ == "__main__":
    main()
