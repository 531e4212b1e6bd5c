"""Segmentation of blobs in noisy images with a small U-Net."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(33)
torch.set_num_threads(1)

SIZE = 40


class Blobs(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
        masks = torch.zeros(n, SIZE, SIZE, dtype=torch.bool)
        for _ in range(3):
            c = torch.rand(n, 2, 1, 1, generator=g) * SIZE
            r = 3 + 5 * torch.rand(n, 1, 1, generator=g)
            masks |= (yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2 < r**2
        self.masks = masks.float().unsqueeze(1)
        self.images = 0.6 * self.masks + 0.7 * torch.randn(n, 1, SIZE, SIZE, generator=g)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.masks[i]


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.SiLU(),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.SiLU(),
    )


class UNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.enc1, self.enc2 = double_conv(1, w), double_conv(w, 2 * w)
        self.mid = double_conv(2 * w, 4 * w)
        self.dec2, self.dec1 = double_conv(6 * w, 2 * w), double_conv(3 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        m = self.dec2(torch.cat([F.interpolate(m, scale_factor=2), b], 1))
        return self.out(self.dec1(torch.cat([F.interpolate(m, scale_factor=2), a], 1)))


def dice(logits, mask):
    p = (logits > 0).float()
    return (2 * (p * mask).sum() / (p.sum() + mask.sum() + 1e-6)).item()


def train_epoch(model, loader, optimizer, scheduler, step):
    for images, masks in loader:
        step += 1
        logits = model(images)
        loss = F.binary_cross_entropy_with_logits(logits, masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} dice {dice(logits, masks):.3f}", flush=True)
    return step


def main(epochs=400):
    loader = DataLoader(
        Blobs(1600, seed=2), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3)
    )
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
    step = 0
    for _ in range(epochs):
        step = train_epoch(model, loader, optimizer, scheduler, step)


if __name__ == "__main__":
    main()
