"""Siamese embedding of faces with a margin contrastive loss."""

import time

import torch
from torch import nn
from torch.nn import functional as F

IDENTITIES, PHOTOS, SIZE, CROP, PAIRS, MARGIN = 100, 24, 40, 24, 32, 1.0
MAX_SECONDS = 600


class Faces:
    def __init__(self, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        base = F.interpolate(
            torch.randn(IDENTITIES, 3, 6, 6, generator=self.g), SIZE, mode="bilinear"
        )
        tone = 1.5 * torch.randn(IDENTITIES, 1, 3, 1, 1, generator=self.g)
        noise = torch.randn(IDENTITIES, PHOTOS, 3, SIZE, SIZE, generator=self.g)
        self.photos = base[:, None] + tone + 0.5 * noise

    def randint(self, high, n):
        return torch.randint(high, (n,), generator=self.g)

    def augment(self, x):
        """Random crop, mirror and channel order."""
        n = len(x)
        top, left = self.randint(SIZE - CROP + 1, n), self.randint(SIZE - CROP + 1, n)
        mirror, turn = self.randint(2, n), self.randint(3, n)
        out = []
        for img, t, l, m, k in zip(x, top.tolist(), left.tolist(), mirror.tolist(), turn.tolist()):
            img = img[:, t : t + CROP, l : l + CROP].roll(k, 0)
            out.append(img.flip(-1) if m else img)
        return torch.stack(out)

    def batch(self):
        who = self.randint(IDENTITIES, PAIRS)
        same = self.randint(2, PAIRS)
        other = torch.where(
            same.bool(), who, (who + 1 + self.randint(IDENTITIES - 1, PAIRS)) % IDENTITIES
        )
        a = self.photos[who, self.randint(PHOTOS, PAIRS)]
        b = self.photos[other, self.randint(PHOTOS, PAIRS)]
        return self.augment(a), self.augment(b), same.float()


class Embedder(nn.Module):
    def __init__(self, w=24, out=64):
        super().__init__()

        def conv(i, o):
            return [nn.Conv2d(i, o, 3, stride=2, padding=1), nn.GroupNorm(4, o), nn.ReLU()]

        self.net = nn.Sequential(
            *conv(3, w),
            *conv(w, 2 * w),
            *conv(2 * w, 4 * w),
            nn.Flatten(),
            nn.Linear(4 * w * (CROP // 8) ** 2, out),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def contrastive(za, zb, same):
    dist = (za - zb).pow(2).sum(-1).sqrt()
    return (same * dist.pow(2) + (1 - same) * F.relu(MARGIN - dist).pow(2)).mean(), dist.detach()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    faces, model = Faces(seed=10), Embedder()
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    deadline, step = time.time() + MAX_SECONDS, 0
    while time.time() < deadline:
        a, b, same = faces.batch()
        loss, dist = contrastive(*model(torch.cat([a, b])).chunk(2), same)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        step += 1
        if step % 50 == 0:
            pos, neg = dist[same == 1].mean().item(), dist[same == 0].mean().item()
            print(f"step {step} loss {loss.item():.4f} same {pos:.3f} other {neg:.3f}", flush=True)


if __name__ == "__main__":
    main()
